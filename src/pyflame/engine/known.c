/* Running a graph whose plan is known, in one step (engine/known.py): as engine/evaluate.py does it, with the walk,
 * the plan's memory, its launches and the taking of results, but for what is rare. That it leaves to Python: it says so
 * before anything has changed. No bytecode runs meanwhile, so no interrupt finds anything half done.
 *
 * References to nodes are counted to see who holds them. native.py has looked where an object has its count.
 */
enum { LEFT_TO_PYTHON, VIEWS, RAN }; /* what came of an attempt; a negative number is an error */
enum { DEEP = 8 };                   /* movement ops above each other */
enum { ON_HOST = 6 };                /* what known.py keeps of a plan; of one for a GPU, more */

static struct {
  object *layouts; /* dict: signatures of movement ops and of the leaf below -> offset, strides, signature */
  object *learn;   /* learn(node): put the layout of a view there; whether there is one */
  object *starts;  /* dict: signature of an assignment -> the one without where it begins, and where that is */
  object *learn_start; /* learn_start(node): put it there */
  object *fresh, *take_back, *popleft; /* methods */
  object *allocate, *signature;        /* allocate(bytes), signature("leaf", meta, None) */
  object *address, *allocated, *allocations, *recent_peak, *peak; /* names of attributes */
  object *itemsize, *leaf;
} given;
static int (*run)(void *call, int64_t count, double pause); /* runtime/cpu/runner.c */
static double pause;

static uint32_t references(const object *thing) { return *(const uint32_t *)thing; }

/* A node that is about to become a leaf, and of what. Value and signature are held. */
typedef struct {
  object *node, *value, *sig;
} result;

typedef struct {
  walk w;
  result *views; /* that the walk has met */
  size viewed, room;
  int64_t *starts; /* where assignments begin, in elements */
  size started;
} attempt;

static object *value_of(object *storage, int64_t start, object *strides) {
  object *out = creator(py.value)(py.value, py.empty, NULL), *from = out ? PyLong_FromLongLong(start) : NULL;
  if (!from) return Py_DecRef(out), NULL;
  Py_IncRef(storage);
  Py_IncRef(strides);
  put(out, offset.storage, storage);
  put(out, offset.start, from);
  put(out, offset.strides, strides);
  return out;
}

/* Whether a thing is a Value in memory: not None, of which a node may have that is not evaluated, or a number. */
static int in_memory(object *value) {
  return (is_a(value, py.value) || is_a(value, py.part)) && slot(value, offset.storage) != py.none;
}

static int note_view(attempt *a, object *node, object *leaf, object *layout, int64_t *sig) {
  if (a->viewed == a->room) {
    a->room = a->room ? 2 * a->room : 16;
    if (resize(&a->views, a->room * (size)sizeof *a->views)) return -1;
  }
  object *below = slot(leaf, offset.data), *number = PyTuple_GetItem(layout, 2);
  const int64_t start = PyLong_AsLongLong(slot(below, offset.start)) + PyLong_AsLongLong(PyTuple_GetItem(layout, 0));
  object *value = value_of(slot(below, offset.storage), start, PyTuple_GetItem(layout, 1));
  if (!value) return -1;
  Py_IncRef(number);
  a->views[a->viewed++] = (result){node, value, number};
  *sig = PyLong_AsLongLong(number);
  return 1;
}

static void forget(result *results, size *count) {
  for (size i = 0; i < *count; i++) {
    Py_DecRef(results[i].value);
    Py_DecRef(results[i].sig);
  }
  *count = 0;
}

/* Whether a node only moves elements of a leaf, so that it is a view of what is in memory (engine/views.py). */
static int is_view(walk *w, object *node, object *op, int64_t *sig) {
  attempt *a = w->caller;
  object *sigs[DEEP + 1], *leaf = node;
  size deep = 0;
  for (; slot(op, offset.kind) == py.a_movement; op = slot(leaf, offset.op)) {
    object *srcs = slot(leaf, offset.srcs);
    if (deep == DEEP || PyTuple_Size(srcs) < 1) return 0;
    sigs[deep++] = slot(leaf, offset.sig);
    leaf = PyTuple_GetItem(srcs, 0);
  }
  if (op != py.leaf || !deep || !in_memory(slot(leaf, offset.data))) return 0;
  sigs[deep] = slot(leaf, offset.sig);
  object *key = PyTuple_New(deep + 1);
  for (size i = 0; key && i <= deep; i++) Py_IncRef(sigs[i]), PyTuple_SetItem(key, i, sigs[i]);
  object *layout = key ? PyDict_GetItem(given.layouts, key) : NULL;
  if (key && !layout) {
    object *learnt = PyObject_CallFunctionObjArgs(given.learn, node, NULL);
    Py_DecRef(learnt);
    layout = learnt ? PyDict_GetItem(given.layouts, key) : NULL;
  }
  Py_IncRef(layout); /* another thread may forget it */
  Py_DecRef(key);
  const int noted = layout ? note_view(a, node, leaf, layout, sig) : PyErr_Occurred() ? -1 : 0;
  Py_DecRef(layout);
  return noted;
}

/* Make leaves of nodes, in one step. What they were is let go of behind it. */
static int become_leaves(const result *results, size count) {
  const int64_t slots[] = {offset.data, offset.sig, offset.srcs, offset.attrs, offset.line, offset.op};
  enum { SLOTS = sizeof slots / sizeof *slots };
  object **before = malloc((size_t)(count + 1) * sizeof slots);
  if (!before) return PyErr_NoMemory(), -1;
  for (size i = 0; i < count; i++) {
    object *after[SLOTS] = {results[i].value, results[i].sig, py.empty, py.empty, py.none, py.leaf};
    for (int n = 0; n < SLOTS; n++) {
      before[i * SLOTS + n] = slot(results[i].node, slots[n]);
      Py_IncRef(after[n]);
      put(results[i].node, slots[n], after[n]);
    }
  }
  for (size i = 0; i < count * SLOTS; i++) Py_DecRef(before[i]);
  free(before);
  return 0;
}

/* --- memory: HostPool.take_all in runtime/pool.py ---------------------------------------------------------------- */

/* A pool as HostPool.parts gives it. */
typedef struct {
  object *pool, *lock, *free, *live, *returned, *give;
} memory;

static memory memory_of(object *parts) {
  object *of[6];
  for (size i = 0; i < 6; i++) of[i] = PyTuple_GetItem(parts, i);
  return (memory){of[0], of[1], of[2], of[3], of[4], of[5]};
}

static int64_t count_of(const memory *m, object *name) {
  object *found = PyObject_GetAttr(m->pool, name);
  const int64_t out = found ? PyLong_AsLongLong(found) : 0;
  Py_DecRef(found);
  return out;
}

static int set_count(const memory *m, object *name, int64_t count) {
  object *made = PyLong_FromLongLong(count);
  const int failed = !made || PyObject_SetAttr(m->pool, name, made);
  Py_DecRef(made);
  return failed ? -1 : 0;
}

/* Put blocks that were given up among the free ones. */
static int take_back(const memory *m) {
  int64_t bytes = 0;
  int odd = 0, failed = 0;
  while (!odd && !failed && PyObject_Size(m->returned) > 0) {
    object *part = PySequence_GetItem(m->returned, 0);
    if (!part) return -1;
    object *parts = PyDict_GetItem(m->free, PyTuple_GetItem(part, 0)), *address = PyTuple_GetItem(part, 1);
    odd = !parts || references(part) > 2 || !PyDict_GetItem(m->live, address);
    if (!odd) {
      bytes += PyLong_AsLongLong(PyTuple_GetItem(part, 0));
      object *same = PyObject_CallFunctionObjArgs(given.popleft, m->returned, NULL);
      failed = !same || PyDict_DelItem(m->live, address) || PyList_Append(parts, part);
      Py_DecRef(same);
    }
    Py_DecRef(part);
  }
  if (bytes) failed |= set_count(m, given.allocated, count_of(m, given.allocated) - bytes);
  if (odd && !failed) {
    object *done = PyObject_CallFunctionObjArgs(given.take_back, m->pool, NULL);
    failed = !done;
    Py_DecRef(done);
  }
  return failed ? -1 : 0;
}

static object *free_part(const memory *m, object *class) {
  object *parts = PyDict_GetItem(m->free, class);
  const size count = parts ? PyList_Size(parts) : 0;
  if (!count) return PyObject_CallFunctionObjArgs(given.fresh, m->pool, class, NULL);
  object *part = PyList_GetItem(parts, count - 1);
  Py_IncRef(part);
  if (PyList_SetSlice(parts, count - 1, count, NULL)) return Py_DecRef(part), NULL;
  return part;
}

static object *block(const memory *m, object *class) {
  object *part = free_part(m, class), *args = part ? PyTuple_New(2) : NULL;
  if (!args) return Py_DecRef(part), NULL;
  const int64_t slots[] = {offset.nbytes, offset.address, offset.memory};
  Py_IncRef(m->give);
  PyTuple_SetItem(args, 0, m->give);
  PyTuple_SetItem(args, 1, part); /* which holds it from here on */
  object *out = creator(py.block)(py.block, args, NULL);
  for (size i = 0; out && i < 3; i++) {
    object *item = PyTuple_GetItem(part, i);
    Py_IncRef(item);
    put(out, slots[i], item);
  }
  int failed = !out || PyDict_SetItem(m->live, PyTuple_GetItem(part, 1), class);
  failed = failed || set_count(m, given.allocated, count_of(m, given.allocated) + PyLong_AsLongLong(class));
  Py_DecRef(args);
  if (failed) return Py_DecRef(out), NULL;
  return out;
}

/* Blocks of these size classes, of the host. */
static int take_of_host(object *parts, object *classes, object **blocks) {
  const memory m = memory_of(parts);
  const size wanted = PyTuple_Size(classes);
  object *locked = PyIter_Next(m.lock);
  int failed = !locked || take_back(&m);
  for (size i = 0; i < wanted && !failed; i++) failed = !(blocks[i] = block(&m, PyTuple_GetItem(classes, i)));
  if (!failed) {
    const int64_t now = count_of(&m, given.allocated);
    failed = set_count(&m, given.allocations, count_of(&m, given.allocations) + wanted);
    if (now > count_of(&m, given.recent_peak)) {
      failed |= set_count(&m, given.recent_peak, now);
      if (now > count_of(&m, given.peak)) failed |= set_count(&m, given.peak, now);
    }
  }
  Py_DecRef(locked);
  return failed ? -1 : 0;
}

/* Blocks of these size classes. `pool`: parts of the host's; else a function that gives them. */
static int take(object *pool, object *classes, object **blocks) {
  const size wanted = PyTuple_Size(classes);
  if (!wanted) return 0;
  if (is_tuple(pool)) return take_of_host(pool, classes, blocks);
  object *found = PyObject_CallFunctionObjArgs(pool, classes, NULL);
  for (size i = 0; found && i < wanted; i++) Py_IncRef(blocks[i] = PyList_GetItem(found, i));
  Py_DecRef(found);
  return found ? 0 : -1;
}

/* --- the run of a plan ------------------------------------------------------------------------------------------- */

/* How a plan runs: bytes that build.py has put together. `stop`: the first launch that overwrites an input. `rest`: of
 * each slot of an input which one lies there; of each output the slot of the input whose memory it takes over, or -1;
 * of each result its slot and offset; of each uniform its kind and the number itself, or whose constant it is; of each
 * start that has a slot, the last ones, which start that is, the slot and the offset that it is added to, and the size
 * of an element. */
typedef struct {
  int64_t table, launches, stop, workers, slots, inputs, outputs, results, arena, uniforms, starts, rest[];
} plan;
enum { ITSELF, FLOAT, WHOLE }; /* kinds of uniforms */

/* What the runner is called with begins like this (pf_call in runner.c). */
enum { TABLE, WORKERS, ERROR = 4, SLOTS = 7, SLOT };

/* A run of a plan: `known` is a plan as bytes and the size classes of the memory that it takes. */
typedef struct {
  const plan *p;
  object *classes;
  object **storages; /* of the slots of inputs and outputs, then the arena; held */
  object **fresh;    /* blocks that are yet to be put there; held */
  int64_t *starts;
  int64_t *call;
} bound;

static int begin_run(bound *b, object *known) {
  const plan *p = (const plan *)PyBytes_AsString(PyTuple_GetItem(known, 0));
  const size words = SLOT + p->slots + p->uniforms;
  int64_t *room = calloc((size_t)(words + 3 * p->slots), sizeof *room);
  if (!room) return PyErr_NoMemory(), -1;
  object **storages = (object **)(room + words);
  *b = (bound){p, PyTuple_GetItem(known, 1), storages, storages + p->slots, room + words + 2 * p->slots, room};
  b->call[TABLE] = p->table;
  b->call[WORKERS] = p->workers;
  b->call[SLOTS] = p->slots;
  return 0;
}

static void end_run(bound *b) {
  for (size i = 0; i < 2 * b->p->slots; i++) Py_DecRef(b->storages[i]); /* and `fresh` behind them */
  free(b->call);
}

static int64_t address_of(object *storage) {
  if (is_a(storage, py.block)) return PyLong_AsLongLong(slot(storage, offset.address));
  object *found = PyObject_GetAttr(storage, given.address);
  const int64_t out = found ? PyLong_AsLongLong(found) : 0;
  Py_DecRef(found);
  return out;
}

static const int64_t *result_places(const plan *p) { return p->rest + p->inputs + p->outputs; }

/* The memory of all slots. `values`: of the plan's inputs; `starts`: where assignments begin. */
static int bind_memory(bound *b, object *const *values, object *pool, const int64_t *starts) {
  const plan *p = b->p;
  const size arena = p->inputs + p->outputs;
  for (size i = 0; i < p->inputs; i++) {
    object *value = values[p->rest[i]];
    if (!in_memory(value)) return LEFT_TO_PYTHON;
    b->storages[i] = slot(value, offset.storage);
    Py_IncRef(b->storages[i]);
    b->starts[i] = PyLong_AsLongLong(slot(value, offset.start));
  }
  if (take(pool, b->classes, b->fresh)) return -1;
  size used = 0;
  for (size i = p->inputs; i <= arena; i++) {
    const int64_t taken = i < arena ? p->rest[i] : -1;
    object **from = taken < 0 ? &b->fresh[used++] : &b->storages[taken];
    b->storages[i] = *from; /* none for the arena of a plan without one */
    if (taken < 0) *from = NULL;
    else Py_IncRef(*from), b->starts[i] = b->starts[taken];
  }
  int64_t *places = b->call + SLOT;
  for (size i = 0; i <= arena && b->storages[i]; i++) places[i] = address_of(b->storages[i]) + b->starts[i];
  const int64_t behind = p->slots - p->starts, *of = result_places(p) + 2 * (p->results + p->uniforms);
  places[arena + 1] = places[arena] + p->arena;
  for (size i = 0; i < p->starts; i++, of += 4) places[behind + i] = places[of[1]] + of[2] + starts[of[0]] * of[3];
  return PyErr_Occurred() ? -1 : RAN;
}

/* The numbers behind the slots. `numbers`: those `count` ones that the caller brings; `starts` come behind them. */
static int bind_uniforms(bound *b, object *const *numbers, size count, const int64_t *starts) {
  const plan *p = b->p;
  const int64_t *of = result_places(p) + 2 * p->results;
  for (size i = 0; i < p->uniforms; i++, of += 2) {
    int64_t *to = b->call + SLOT + p->slots + i;
    if (of[0] == ITSELF) *to = of[1];
    else if (of[1] >= count) *to = starts[of[1] - count];
    else if (of[0] == WHOLE) *to = PyLong_AsLongLong(numbers[of[1]]);
    else *(double *)to = PyFloat_AsDouble(numbers[of[1]]);
  }
  if (!PyErr_Occurred()) return RAN;
  PyErr_Clear(); /* a number that 64 bits hold only without a sign */
  return LEFT_TO_PYTHON;
}

/* Run launches up to one; the GIL is released meanwhile. */
static int run_up_to(bound *b, int64_t stop, double seconds) {
  void *thread = PyEval_SaveThread();
  const int status = run(b->call, stop, seconds);
  PyEval_RestoreThread(thread);
  return status;
}

/* Run the launches. From time to time Python looks for signals, until the first launch that overwrites an input. */
static int launch(bound *b) {
  enum { DONE, TOO_MANY_BUFFERS, PAUSED };
  const plan *p = b->p;
  int status = p->stop ? PAUSED : DONE;
  while (status == PAUSED) {
    status = run_up_to(b, p->stop, pause);
    if (status == PAUSED && PyErr_CheckSignals()) return -1;
  }
  if (status == DONE && p->stop < p->launches) status = run_up_to(b, p->launches, 0.0);
  return status == DONE && !b->call[ERROR] ? RAN : LEFT_TO_PYTHON; /* which finds the same error, and raises it */
}

static object *value_at(const attempt *a, object *node) {
  for (size i = 0; i < a->viewed; i++)
    if (a->views[i].node == node) return a->views[i].value;
  return slot(node, offset.data);
}

/* Turn views and outputs into leaves. */
static int take_results(const bound *b, attempt *a, object *const *outputs, object *sigs, object *strides) {
  const int64_t *of = result_places(b->p);
  const size wanted = b->p->results;
  result *results = malloc((size_t)(wanted + 1) * sizeof *results);
  if (!results) return PyErr_NoMemory(), -1;
  size made = 0;
  for (; made < wanted; made++, of += 2) {
    object *value = value_of(b->storages[of[0]], b->starts[of[0]] + of[1], PyTuple_GetItem(strides, made));
    if (!value) break;
    object *sig = PyTuple_GetItem(sigs, made);
    Py_IncRef(sig);
    results[made] = (result){outputs[made], value, sig};
  }
  const int failed = made < wanted || become_leaves(a->views, a->viewed) || become_leaves(results, made);
  forget(results, &made);
  free(results);
  return failed ? -1 : RAN;
}

/* Run a plan. `known`: what known.py keeps of it. */
static int run_plan(attempt *a, object *known, object *const *values, object *const *numbers, object *const *outputs) {
  bound b;
  if (begin_run(&b, known)) return -1;
  int status = bind_uniforms(&b, numbers, a->w.leaves - (numbers - values), a->starts);
  if (status > 0) status = bind_memory(&b, values, PyTuple_GetItem(known, 4), a->starts);
  if (status > 0) status = launch(&b);
  if (status > 0) status = take_results(&b, a, outputs, PyTuple_GetItem(known, 2), PyTuple_GetItem(known, 3));
  end_run(&b);
  return status;
}

/* --- which plan that is ------------------------------------------------------------------------------------------ */

static object *kind_of(object *node) { return slot(slot(node, offset.op), offset.kind); }

/* Nodes that are no leaves, and of which a plan must know more than their structure, are left to Python, but for those
 * whose values are checked and those that write to what is yet to be computed. */
static int is_plain(const walk *w) {
  for (size i = 0; i < w->insides; i++) {
    object *op = w->inside[i].op, *kind = slot(op, offset.kind), *alias = slot(op, offset.alias);
    if (kind == py.a_copy || kind == py.a_collective) return 0;
    if (alias == py.none) continue;
    object *base = PyTuple_GetItem(w->inside[i].srcs, (size)PyLong_AsLongLong(alias));
    if (!base || slot(base, offset.op) == py.leaf) return 0;
  }
  return 1;
}

/* Take where assignments begin out of the key, as PendingGraph._take_starts does; 0: that is left to Python. */
static int take_starts(attempt *a) {
  walk *w = &a->w;
  size word = w->leaves;
  for (size i = 0; i < w->insides; word += 1 + PyTuple_Size(w->inside[i++].srcs)) {
    const inner *of = &w->inside[i];
    if (slot(of->op, offset.kind) != py.an_assignment) continue;
    object *sig = slot(of->node, offset.sig), *known = PyDict_GetItem(given.starts, sig);
    if (!known) {
      object *learnt = PyObject_CallFunctionObjArgs(given.learn_start, of->node, NULL);
      Py_DecRef(learnt);
      known = learnt ? PyDict_GetItem(given.starts, sig) : NULL;
    }
    if (!known || !PyTuple_Size(known)) return PyErr_Occurred() ? -1 : 0;
    if (resize(&a->starts, (a->started + 1) * (size)sizeof *a->starts)) return -1;
    w->key[word] = ~PyLong_AsLongLong(PyTuple_GetItem(known, 0));
    a->starts[a->started++] = PyLong_AsLongLong(PyTuple_GetItem(known, 1));
  }
  return 1;
}

/* What is to be stored along for a node that somebody holds: for a view what it shows; NULL: nothing. */
static object *stored_for(object *node) {
  while (kind_of(node) == py.a_movement) node = PyTuple_GetItem(slot(node, offset.srcs), 0);
  object *kind = kind_of(node);
  return kind == py.a_leaf || kind == py.a_number || kind == py.an_iota ? NULL : node;
}

/* The outputs, and what others hold, each once; gives how many. The key goes on with where they are. */
static size wanted(walk *w, object *nodes, object **outputs, char *taken) {
  const size asked = PyList_Size(nodes);
  size count = 0;
  if (add_word(w, -1)) return -1;
  for (size i = -asked; i < w->insides; i++) {
    object *node = i < 0 ? PyList_GetItem(nodes, i + asked) : w->inside[i].node;
    if (i >= 0 && (taken[w->leaves + i] || references(node) <= w->reads[w->leaves + i] || !(node = stored_for(node))))
      continue;
    const int64_t at = find(w, node)->position;
    if (taken[at]) continue;
    taken[at] = 1;
    if (add_word(w, at)) return -1;
    outputs[count++] = node;
  }
  return count;
}

/* Split the leaves: values of what is in memory, and numbers behind them; gives these. `both` has room for all. */
static object **constants_behind(const attempt *a, object **both) {
  const walk *w = &a->w;
  size inputs = 0, constants = 0;
  for (size i = 0; i < w->leaves; i++) inputs += slot(w->order[i], offset.op) != py.number;
  object **numbers = both + inputs;
  for (size i = 0, n = 0; i < w->leaves; i++) {
    object *node = w->order[i];
    if (slot(node, offset.op) == py.number) numbers[constants++] = slot(node, offset.data);
    else both[n++] = value_at(a, node);
  }
  return numbers;
}

static object *parts_of_joined(const walk *w); /* evaluate.c */
static int run_on_gpu(attempt *a, object *known, object *const *values, object *const *numbers, object *const *outputs); /* gpu_run.c */

/* Run the plan of what is below some nodes. Where none is known, `*parts` gets what to evaluate before, if that is given
 * and there is anything. */
static int run_known(attempt *a, object *nodes, object *plans, object **parts) {
  walk *w = &a->w;
  if (walk_below(w, nodes)) return -1;
  const int plain = is_plain(w) ? w->sliced ? 1 : take_starts(a) : 0;
  if (plain < 1) return plain < 0 ? -1 : LEFT_TO_PYTHON;
  object **room = calloc((size_t)w->met, 2 * sizeof *room + 1), **outputs = room + w->met;
  if (!room) return PyErr_NoMemory(), -1;
  int status = wanted(w, nodes, outputs, (char *)(outputs + w->met)) < 0 ? -1 : LEFT_TO_PYTHON;
  object *key = status ? NULL : PyBytes_FromStringAndSize((const char *)w->key, w->words * (size)sizeof *w->key);
  object *known = key ? PyDict_GetItem(plans, key) : NULL;
  Py_IncRef(known); /* another thread may forget it */
  if (known) {
    object **numbers = constants_behind(a, room);
    status = (PyTuple_Size(known) > ON_HOST ? run_on_gpu : run_plan)(a, known, room, numbers, outputs);
  } else if (key && parts && !(*parts = parts_of_joined(w))) status = -1;
  if (!key) status = -1;
  Py_DecRef(known);
  Py_DecRef(key);
  free(room);
  return status;
}
