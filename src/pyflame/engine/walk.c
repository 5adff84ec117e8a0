/* The walk over a pending graph (PendingGraph._walk in engine/pending.py, where the same stands in Python). */

typedef struct {
  int64_t serial, sig;
  object *node, *srcs, *op; /* srcs and op are held: they keep all nodes below alive */
  size found;               /* when it was met: of two nodes with one serial, the first comes first */
} inner;

typedef struct {
  object *node;
  int64_t position; /* -1: seen, and yet to be numbered */
} place;

typedef struct walk walk;
struct walk {
  /* Whether a node is a view of what is in memory: then it is a leaf, whose signature this gives. */
  int (*view)(walk *w, object *node, object *op, int64_t *sig);
  void *caller;
  object **nodes; /* in the order in which they are met; alive, for their readers' sources are held */
  size met, most;
  inner *inside;
  size insides, leaves;
  int sliced; /* whether slices are left */
  place *places; /* by address */
  size mask;
  object **order; /* all nodes: leaves and constants, then `inside` */
  int64_t *reads; /* of each of them: how often it is a source */
  int64_t *key;
  size words, room;
};

static place *find(const walk *w, const object *node) {
  size at = (size)(((uint64_t)(uintptr_t)node >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 20) & w->mask;
  while (w->places[at].node && w->places[at].node != node) at = (at + 1) & w->mask;
  return &w->places[at];
}

static int resize(void *array, size bytes) {
  void *made = realloc(*(void **)array, (size_t)bytes);
  if (!made) return PyErr_NoMemory(), -1;
  *(void **)array = made;
  return 0;
}

/* Room for twice as many nodes. */
static int grow(walk *w) {
  const size most = w->most ? 2 * w->most : 64, before = w->most ? w->mask + 1 : 0;
  if (resize(&w->nodes, most * (size)sizeof *w->nodes) || resize(&w->inside, most * (size)sizeof *w->inside) ||
      resize(&w->order, most * (size)sizeof *w->order))
    return -1;
  place *places = calloc((size_t)(4 * most), sizeof *places), *old = w->places;
  if (!places) return PyErr_NoMemory(), -1;
  w->places = places;
  w->mask = 4 * most - 1;
  w->most = most;
  for (size i = 0; i < before; i++)
    if (old[i].node) *find(w, old[i].node) = old[i];
  free(old);
  return 0;
}

static int meet(walk *w, object *node) {
  if (w->met == w->most && grow(w)) return -1;
  place *found = find(w, node);
  if (!found->node) {
    *found = (place){node, -1};
    w->nodes[w->met++] = node;
  }
  return 0;
}

static int add_word(walk *w, int64_t word) {
  if (w->words == w->room) {
    w->room = w->room ? 2 * w->room : 256;
    if (resize(&w->key, w->room * (size)sizeof *w->key)) return -1;
  }
  w->key[w->words++] = word;
  return 0;
}

/* Whether what is below a reshape makes it a part of memory. */
static int shows_part(object *srcs) {
  object *below = PyTuple_GetItem(srcs, 0);
  if (!below) return -1;
  return slot(below, offset.op) == py.slice || is_a(slot(below, offset.data), py.part);
}

static int looks_like_leaf(walk *w, inner *of) {
  if (of->op == py.leaf || of->op == py.number) return 1;
  int asks = of->op == py.slice;
  if (of->op == py.reshape) asks = shows_part(of->srcs);
  if (asks <= 0) return asks;
  const int leaf = w->view(w, of->node, of->op, &of->sig);
  w->sliced |= !leaf && of->op == py.slice;
  return leaf;
}

static void let_go(inner *of) {
  Py_DecRef(of->srcs);
  Py_DecRef(of->op);
}

/* All nodes below the outputs: leaves and constants are numbered as they are met, others noted. */
static int reach(walk *w) {
  for (size at = 0; at < w->met; at++) {
    inner *of = &w->inside[w->insides];
    object *node = w->nodes[at];
    *of = (inner){.node = node, .srcs = slot(node, offset.srcs), .op = slot(node, offset.op), .found = at};
    Py_IncRef(of->srcs);
    Py_IncRef(of->op);
    of->sig = PyLong_AsLongLong(slot(node, offset.sig));
    const int leaf = looks_like_leaf(w, of);
    if (leaf > 0) {
      find(w, node)->position = w->leaves;
      w->order[w->leaves++] = node;
      const int failed = add_word(w, ~of->sig);
      let_go(of);
      if (failed) return -1;
      continue;
    }
    w->insides++; /* so that it is let go of, whatever comes */
    if (leaf < 0) return -1;
    of->serial = PyLong_AsLongLong(slot(node, offset.serial));
    object *srcs = of->srcs; /* `inside` may move */
    const size count = PyTuple_Size(srcs);
    for (size i = 0; i < count; i++)
      if (meet(w, PyTuple_GetItem(srcs, i))) return -1;
  }
  return 0;
}

static int by_serial(const void *one, const void *other) {
  const inner *a = one, *b = other;
  if (a->serial != b->serial) return a->serial < b->serial ? -1 : 1;
  return a->found < b->found ? -1 : 1;
}

/* Number one node that is no leaf, and its sources. */
static int number(walk *w, const inner *of, int64_t position) {
  find(w, of->node)->position = position;
  w->order[position] = of->node;
  if (add_word(w, ~of->sig)) return -1;
  const size count = PyTuple_Size(of->srcs);
  for (size i = 0; i < count; i++) {
    const int64_t at = find(w, PyTuple_GetItem(of->srcs, i))->position;
    if (at < 0) return PyErr_BadInternalCall(), -1; /* it was made after its reader */
    w->reads[at] += 1;
    if (add_word(w, at)) return -1;
  }
  return 0;
}

/* What is below these outputs: `order`, `reads` and `key`. To be ended with `end_walk`, also where it fails. */
static int walk_below(walk *w, object *outputs) {
  const size wanted = PyList_Size(outputs);
  if (wanted < 0 || grow(w)) return -1;
  for (size i = 0; i < wanted; i++)
    if (meet(w, PyList_GetItem(outputs, i))) return -1;
  if (reach(w)) return -1;
  qsort(w->inside, (size_t)w->insides, sizeof *w->inside, by_serial);
  w->reads = calloc((size_t)w->met + 1, sizeof *w->reads);
  if (!w->reads) return PyErr_NoMemory(), -1;
  for (size i = 0; i < w->insides; i++)
    if (number(w, &w->inside[i], w->leaves + i)) return -1;
  return 0;
}

static void end_walk(walk *w) {
  for (size i = 0; i < w->insides; i++) let_go(&w->inside[i]);
  free(w->nodes);
  free(w->inside);
  free(w->places);
  free(w->order);
  free(w->reads);
  free(w->key);
}

static int append_number(object *list, int64_t number) {
  object *made = PyLong_FromLongLong(number);
  const int failed = !made || PyList_Append(list, made);
  Py_DecRef(made);
  return failed ? -1 : 0;
}

static int ask_python(walk *w, object *node, object *op, int64_t *sig) {
  object *answer = PyObject_CallFunctionObjArgs(w->caller, node, op, NULL);
  if (!answer) return -1;
  const int64_t found = PyLong_AsLongLong(answer);
  Py_DecRef(answer);
  if (found < 0) return PyErr_Occurred() ? -1 : 0;
  *sig = found;
  return 1;
}

/* Give Python what the walk has found: in its own lists, which count as references to nodes. */
static int tell_all(const walk *w, object *index, object *uses, object *order, object *inputs, object *constants) {
  for (size i = 0; i < w->met; i++) {
    object *node = w->order[i], *at = PyLong_FromLongLong(i);
    const int inner = i >= w->leaves;
    int failed = !at || PyList_Append(order, node) || PyDict_SetItem(index, node, at) ||
                 append_number(uses, w->reads[i] + 1 + inner); /* the index's and, for these, the order's */
    if (!failed && !inner) failed = PyList_Append(slot(node, offset.op) == py.number ? constants : inputs, node);
    Py_DecRef(at);
    if (failed) return -1;
  }
  return 0;
}

/* Show Python the nodes of which a plan must know more than their structure. */
static int note_all(const walk *w, object *note) {
  size word = w->leaves;
  for (size i = 0; i < w->insides; i++) {
    const inner *of = &w->inside[i];
    if (slot(of->op, offset.plain) == py.false) {
      object *at = PyLong_FromLongLong(word), *place = PyLong_FromLongLong(w->leaves + i);
      object *done = at && place ? PyObject_CallFunctionObjArgs(note, of->node, of->op, of->srcs, at, place, NULL) : NULL;
      Py_DecRef(at);
      Py_DecRef(place);
      Py_DecRef(done);
      if (!done) return -1;
    }
    word += 1 + PyTuple_Size(of->srcs);
  }
  return 0;
}

/* walk(outputs, index, uses, order, inputs, constants, key, view, note) */
static object *walked(object *self, object *const *a, size count) {
  walk w = {.view = ask_python, .caller = a[7]};
  object *key = a[6];
  int failed = walk_below(&w, a[0]) || tell_all(&w, a[1], a[2], a[3], a[4], a[5]);
  for (size i = 0; i < w.words && !failed; i++) failed = append_number(key, w.key[i]);
  failed = failed || note_all(&w, a[8]);
  end_walk(&w);
  if (failed) return NULL;
  Py_IncRef(key);
  return key;
}

static method walk_method = {"walk", walked, FASTCALL, NULL};

/* The walk, for Python. */
object *PF_KEY_walk(void) { return PyCFunction_NewEx(&walk_method, NULL, NULL); }
