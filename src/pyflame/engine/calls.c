/* Calls whose outcome is known (ir/recipe.py): the Nodes of an op or of a gradient rule, made again from their recipe,
 * with what the tape keeps of them. Here: what both kinds share; then ops (tensor/known_calls.py), then the steps of a
 * backward walk (autograd/walk.py).
 */
enum { WORDS = 128, NODES = 64 }; /* of a call, at most; more are left to Python */

static struct {
  const maker *node;
  object *defaults, *user_line, *bound, *permute;
  object *whole, *real, *truth, *text, *tuple, *list; /* types */
  object *number_type, *recorder, *tracer, *autocast, *line, *eager, *in_backward, *pending, *device; /* names */
  int64_t seldom;
} known_calls;
static const maker *entries; /* of the tape */
enum { E_OP, E_ATTRS, E_PARENTS, E_METAS, E_META, E_SRCS, E_OUT, E_FREED, E_HOOKS };
enum { N_OP, N_SRCS, N_ATTRS, N_META, N_SIG, N_DATA };

/* What a call is given: the words of its key, and the Nodes that its recipe counts from 0 on. All are held. */
typedef struct {
  object *word[WORDS], *node[NODES], *tape[NODES];
  size words, given;
  object *number; /* that the key does not hold; borrowed */
  int64_t taped;  /* bits: which Nodes are on the tape */
} asked;

static void end_asked(asked *a) {
  for (size i = 0; i < a->words; i++) Py_DecRef(a->word[i]);
  for (size i = 0; i < a->given; i++) Py_DecRef(a->node[i]), Py_DecRef(a->tape[i]);
}

/* Add a word to the key; 0 where there is no room. */
static int add(asked *a, object *word) {
  if (!word || a->words == WORDS) return 0;
  Py_IncRef(word);
  a->word[a->words++] = word;
  return 1;
}

static int add_count(asked *a, int64_t count) {
  object *made = PyLong_FromLongLong(count);
  const int added = add(a, made);
  Py_DecRef(made);
  return added;
}

/* A float is in a key with its type, for 1 is equal to 1.0. So would be -0.0 to 0.0, and NaN to nothing. */
static int add_float(asked *a, object *value) {
  const double number = PyFloat_AsDouble(value);
  if (number != number || (number == 0 && __builtin_signbit(number))) return 0;
  return add(a, known_calls.real) && add(a, value);
}

static int add_constant(asked *a, object *node) {
  object *data = slot(node, offset.data), *attrs = slot(node, offset.attrs);
  if (PyTuple_Size(attrs)) return 0; /* a number that jit feeds */
  if (is_a(data, known_calls.real)) return add_float(a, data);
  if (is_a(data, known_calls.truth)) return add(a, known_calls.truth) && add(a, data);
  return is_a(data, known_calls.whole) && add(a, data);
}

/* What a call may see of a Node: its meta and its op, of a number which one, and how a permutation turns axes. A Node
 * that comes twice is the same one in the recipe. `tape`: its place there, or NULL. */
static int add_node(asked *a, object *node, object *tape) {
  if (!node || !is_a(node, known_calls.node->type)) return 0; /* a parameter that has no shape yet */
  if (tape == py.none) tape = NULL;
  for (size i = 0; i < a->given; i++)
    if (a->node[i] == node) {
      if (tape && !a->tape[i]) Py_IncRef(a->tape[i] = tape), a->taped |= INT64_C(1) << i;
      return add(a, known_calls.defaults) && add_count(a, i); /* which no argument is */
    }
  if (a->given == NODES - 1) return 0;
  if (tape) a->taped |= INT64_C(1) << a->given;
  Py_IncRef(node);
  Py_IncRef(tape);
  a->node[a->given] = node;
  a->tape[a->given++] = tape;
  object *op = slot(node, offset.op);
  if (!add(a, slot(node, known_calls.node->offset[N_META]))) return 0;
  if (!add(a, op == known_calls.permute ? slot(node, offset.sig) : op)) return 0;
  return op != py.number || add_constant(a, node);
}

/* How the key of a call begins: 0 in modes in which Python is to make it. `backward`: whether this is a gradient. */
static int begin(asked *a, object *here, int backward) {
  object *const off[] = {known_calls.recorder, known_calls.tracer, known_calls.autocast, known_calls.line};
  for (size i = 0; i < (size)(sizeof off / sizeof *off); i++)
    if (PyDict_GetItem(here, off[i]) != py.none) return 0;
  if (PyDict_GetItem(here, known_calls.eager) != py.false) return 0;
  if ((PyDict_GetItem(here, known_calls.in_backward) != py.false) != backward) return 0;
  object *device = PyDict_GetItem(here, known_calls.device);
  object *dtype = PyObject_GetAttr(known_calls.defaults, known_calls.number_type);
  const int begun = device && device != py.none && add(a, device) && add(a, dtype);
  Py_DecRef(dtype);
  return begun;
}

/* A call's key. */
static object *key_of(const asked *a) {
  object *key = PyTuple_New(a->words);
  for (size i = 0; key && i < a->words; i++) Py_IncRef(a->word[i]), PyTuple_SetItem(key, i, a->word[i]);
  return key;
}

/* (key, Nodes), for Python. */
static object *told(const asked *a) {
  object *key = key_of(a), *nodes = PyTuple_New(a->given), *out = PyTuple_New(2);
  if (!key || !nodes || !out) return Py_DecRef(key), Py_DecRef(nodes), Py_DecRef(out), NULL;
  for (size i = 0; i < a->given; i++) Py_IncRef(a->node[i]), PyTuple_SetItem(nodes, i, a->node[i]);
  PyTuple_SetItem(out, 0, key);
  PyTuple_SetItem(out, 1, nodes);
  return out;
}

/* Calls of one op in a row whose keys were new. Where a text grows at each step all are, so that only some are looked up
 * then: until one comes again. Two ops that share a place only look more or less often. */
enum { IN_VAIN = 32, LOOK = 8 };
typedef struct {
  uint32_t vain, passed;
} row_of_new;
static row_of_new new_lately[256];

static row_of_new *new_of(object *op) { return &new_lately[((uintptr_t)op >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> 56]; }

static int is_worth_looking(object *op) {
  row_of_new *row = new_of(op);
  return row->vain < IN_VAIN || ++row->passed % LOOK == 0;
}

/* What is known of a key, borrowed; NULL of one that came seldom: that is noted. `op`: whose call it is. */
static object *look_up(object *table, object *key, object *op) {
  object *found = PyDict_GetItem(table, key);
  new_of(op)->vain = found ? 0 : new_of(op)->vain + 1;
  if (found && !is_a(found, known_calls.whole)) return found;
  const int64_t count = found ? PyLong_AsLongLong(found) + 1 : 1;
  if (!found && PyObject_Size(table) % 64 == 0) { /* now and then: Python takes longer than all the rest */
    object *done = PyObject_CallFunctionObjArgs(known_calls.bound, table, NULL);
    Py_DecRef(done);
    if (!done) return NULL;
  }
  object *mark = count < known_calls.seldom ? PyLong_FromLongLong(count) : (Py_IncRef(py.none), py.none);
  if (mark) PyDict_SetItem(table, key, mark); /* who asks sees an error */
  Py_DecRef(mark);
  return NULL;
}

/* --- making what a recipe says ----------------------------------------------------------------------------------- */

enum { STEP_TAPED = 1, STEP_KEEPS_OUT = 2, STEP_CHECKED = 4, STEP_FED = 8, NO_SOURCES = -2 };

typedef struct {
  const int64_t *next; /* of the recipe's numbers */
  object *things;
  int64_t steps, results;
  const int64_t *result;
  object *value[NODES * 2], *tape[NODES * 2]; /* held from `given` on */
  size given, made, nodes;
} making;

/* The number of the call, as the float that a constant holds. */
static object *as_float(object *number) {
  if (is_a(number, known_calls.real)) return Py_IncRef(number), number;
  const double value = PyFloat_AsDouble(number);
  return value == -1 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(value);
}

static int make_constant(making *m, object *const *thing, int64_t flags, object *number) {
  object *data = thing[4];
  if (flags & STEP_FED) data = as_float(number);
  else Py_IncRef(data);
  object *values[] = {thing[0], py.empty, thing[1], thing[2], thing[3], data};
  m->value[m->made] = data ? make(known_calls.node, values, 6) : NULL;
  Py_DecRef(data);
  return m->value[m->made] ? 0 : -1;
}

/* A tuple of some of these. `from`: pairs of numbers, place and whether it is kept. */
static object *gathered(object *const *values, const int64_t *from, int64_t count, int all) {
  object *out = PyTuple_New(count);
  for (int64_t i = 0; out && i < count; i++) {
    object *value = all || from[2 * i + 1] ? values[from[2 * i]] : NULL;
    if (!value) value = py.none;
    Py_IncRef(value);
    PyTuple_SetItem(out, i, value);
  }
  return out;
}

static int make_entry(making *m, object *const *thing, int64_t flags, const int64_t *from, int64_t count) {
  object *parents = gathered(m->tape, from, count, 1), *kept = gathered(m->value, from, count, 0);
  object *out = flags & STEP_KEEPS_OUT ? m->value[m->made] : py.none;
  object *values[] = {thing[0], thing[1], parents, thing[4], thing[2], kept, out, py.false};
  m->tape[m->made] = parents && kept ? make(entries, values, 8) : NULL;
  Py_DecRef(parents);
  Py_DecRef(kept);
  return m->tape[m->made] ? 0 : -1;
}

static int make_node(making *m, object *const *thing, int64_t flags, int64_t count) {
  const int64_t *from = m->next;
  object *srcs = gathered(m->value, from, count, 1), *line = py.none;
  m->next += 2 * count;
  if (srcs && flags & STEP_CHECKED) line = PyObject_CallFunctionObjArgs(known_calls.user_line, NULL);
  object *values[] = {thing[0], srcs, thing[1], thing[2], thing[3], py.none, line};
  object *node = srcs && line ? make(known_calls.node, values, 7) : NULL;
  Py_DecRef(srcs);
  if (line != py.none) Py_DecRef(line);
  if (!node) return -1;
  m->value[m->made] = node;
  m->nodes++;
  return flags & STEP_TAPED ? make_entry(m, thing, flags, from, count) : 0;
}

/* Make all Nodes of a recipe. To be ended with `end_making`, also where it fails. */
static int make_all(making *m, const asked *a, object *recipe) {
  m->next = (const int64_t *)PyBytes_AsString(PyTuple_GetItem(recipe, 0));
  m->things = PyTuple_GetItem(recipe, 1);
  m->steps = *m->next++;
  m->results = *m->next++;
  m->result = m->next;
  m->next += m->results;
  m->given = m->made = a->given;
  m->nodes = 0;
  memcpy(m->value, a->node, (size_t)a->given * sizeof *a->node);
  memcpy(m->tape, a->tape, (size_t)a->given * sizeof *a->tape);
  for (int64_t s = 0; s < m->steps; s++, m->made++) {
    object *thing[5];
    for (size i = 0; i < 5; i++) thing[i] = PyTuple_GetItem(m->things, 1 + 5 * s + i);
    const int64_t flags = *m->next++, count = *m->next++;
    m->value[m->made] = m->tape[m->made] = NULL;
    const int failed = count == NO_SOURCES ? make_constant(m, thing, flags, a->number) : make_node(m, thing, flags, count);
    if (failed) return m->made++, -1;
  }
  return 0;
}

static void end_making(making *m) {
  for (size i = m->given; i < m->made; i++) Py_DecRef(m->value[i]), Py_DecRef(m->tape[i]);
}

/* Count the Nodes among those that are pending. */
static int count_pending(object *here, size nodes) {
  object *before = PyDict_GetItem(here, known_calls.pending);
  object *now = before ? PyLong_FromLongLong(PyLong_AsLongLong(before) + nodes) : NULL;
  const int failed = !now || PyDict_SetItem(here, known_calls.pending, now);
  Py_DecRef(now);
  return failed ? -1 : 0;
}

/* What ir/recipe.py gives. */
object *PF_KEY_recipes(object *things) {
  known_calls.node = PyLong_AsVoidPtr(PyTuple_GetItem(things, 0));
  object **to = &known_calls.defaults;
  const size last = PyTuple_Size(things) - 1;
  for (size i = 1; i < last; i++) to[i - 1] = PyTuple_GetItem(things, i);
  known_calls.seldom = PyLong_AsLongLong(PyTuple_GetItem(things, last));
  Py_IncRef(things);
  Py_IncRef(py.none);
  return py.none;
}

/* --- ops ---------------------------------------------------------------------------------------------------------- */

static struct {
  const maker *tensor;
  object *kind, *asked, *dtype, *size, *table, *grad_enabled, *out;
  int64_t most_pending;
} ops;

/* Whether functions take objects of a type as tensors: not where they ask its __torch_function__ (tensor/overrides.py). */
static int is_of_tensors(object *type) {
  if (type == ops.kind || !PyType_IsSubtype(type, ops.kind)) return type == ops.kind;
  if (!PyObject_Size(ops.asked)) return 1;
  object *reference = PyWeakref_NewRef(type, NULL);
  const int found = reference ? PySet_Contains(ops.asked, reference) : -1;
  Py_DecRef(reference);
  return !found;
}

/* Add an argument to the key: tensors, plain values, and sequences of them. */
static int add_value(asked *a, object *value, int taped, int deep) {
  if (value == py.none) return add(a, value);
  object *type = PyObject_Type(value);
  Py_DecRef(type); /* the value holds it */
  if (is_of_tensors(type))
    return add_node(a, slot(value, ops.tensor->offset[0]), taped ? slot(value, ops.tensor->offset[1]) : NULL);
  if (type == known_calls.whole || type == known_calls.text || type == ops.dtype) return add(a, value);
  if (type == known_calls.real) return add_float(a, value);
  if (type == known_calls.truth) return add(a, type) && add(a, value);
  if (deep == 2 || (type != known_calls.tuple && type != known_calls.list && type != ops.size)) return 0;
  if (!add(a, type)) return 0;
  const size count = PyObject_Size(value);
  for (size i = 0; i < count; i++)
    if (!add_value(a, type == known_calls.list ? PyList_GetItem(value, i) : PyTuple_GetItem(value, i), taped, deep + 1))
      return 0;
  return add(a, py.empty);
}

/* Put the key of a call together: 0 where it has none. a: op, args, kwargs, the thread's state, whether the key holds no
 * numbers. */
static int ask(asked *a, object *const *of) {
  object *here = of[3];
  if (!begin(a, here, 0) || PyLong_AsLongLong(PyDict_GetItem(here, known_calls.pending)) > ops.most_pending) return 0;
  const int taped = PyDict_GetItem(here, ops.grad_enabled) != py.false, open = of[4] != py.false;
  if (!add(a, of[0])) return 0;
  for (size i = 0; i < PyTuple_Size(of[1]); i++) {
    object *value = PyTuple_GetItem(of[1], i);
    const int number = open && (is_a(value, known_calls.real) || is_a(value, known_calls.whole));
    if (number && a->number) return 0;
    if (number) a->number = value;
    if (number) {
      if (!add(a, is_a(value, known_calls.real) ? known_calls.real : known_calls.whole)) return 0;
    } else if (!add_value(a, value, taped, 0)) return 0;
  }
  object *name, *value;
  if (PyObject_Size(of[2]) && !add(a, known_calls.user_line)) return 0; /* so that no name is taken for an argument */
  for (size at = 0; PyDict_Next(of[2], &at, &name, &value);)
    if (name == ops.out || !add(a, name) || !add_value(a, value, taped, 0)) return 0;
  return a->given && add_count(a, a->taped);
}

static object *result_at(const making *m, int64_t at) {
  object *values[] = {m->value[at], m->tape[at] ? m->tape[at] : py.none};
  return make(ops.tensor, values, 2);
}

static object *results_of(const making *m) {
  object *shape = PyTuple_GetItem(m->things, 0);
  if (shape == py.none) return result_at(m, m->result[0]);
  object *all = PyList_New(0);
  int failed = !all;
  for (int64_t i = 0; i < m->results && !failed; i++) {
    object *one = result_at(m, m->result[i]);
    failed = !one || PyList_Append(all, one);
    Py_DecRef(one);
  }
  object *out = failed ? NULL : PyObject_CallFunctionObjArgs(shape, all, NULL);
  Py_DecRef(all);
  return out;
}

/* known_call(op, args, kwargs, state, open): the result of a call. None: Python is to make it; True: and to learn it. */
static object *known_call(object *self, object *const *of, size count) {
  asked a = {.words = 0};
  making m = {.made = 0};
  object *out = py.none, *key = is_worth_looking(of[0]) && ask(&a, of) ? key_of(&a) : NULL;
  object *recipe = key ? look_up(ops.table, key, of[0]) : NULL;
  if (recipe && is_a(recipe, known_calls.tuple)) {
    Py_IncRef(recipe); /* another thread may forget it */
    out = make_all(&m, &a, recipe) || count_pending(of[3], m.nodes) ? NULL : results_of(&m);
    end_making(&m);
    Py_DecRef(recipe);
  } else {
    if (recipe && recipe != py.false) out = py.true;
    Py_IncRef(out);
  }
  Py_DecRef(key);
  end_asked(&a);
  return PyErr_Occurred() && out ? (Py_DecRef(out), NULL) : out;
}

/* key_of_call(op, args, kwargs, state, open): its key and the Nodes that it is given, or None. */
static object *key_of_call(object *self, object *const *of, size count) {
  asked a = {.words = 0};
  object *out = ask(&a, of) ? told(&a) : (Py_IncRef(py.none), py.none);
  end_asked(&a);
  return out;
}

static object *pair(method *one, method *other) {
  object *first = PyCFunction_NewEx(one, NULL, NULL), *second = PyCFunction_NewEx(other, NULL, NULL);
  object *out = first && second ? PyTuple_New(2) : NULL;
  if (!out) return Py_DecRef(first), Py_DecRef(second), NULL;
  PyTuple_SetItem(out, 0, first);
  PyTuple_SetItem(out, 1, second);
  return out;
}

static method call_method = {"known_call", known_call, FASTCALL, NULL};
static method call_key_method = {"key_of_call", key_of_call, FASTCALL, NULL};

/* What tensor/known_calls.py gives. */
object *PF_KEY_calls(object *things) {
  ops.tensor = PyLong_AsVoidPtr(PyTuple_GetItem(things, 0));
  object **to = &ops.kind;
  for (size i = 1; i < 8; i++) to[i - 1] = PyTuple_GetItem(things, i);
  ops.most_pending = PyLong_AsLongLong(PyTuple_GetItem(things, 8));
  Py_IncRef(things);
  return pair(&call_method, &call_key_method);
}

/* --- steps of a backward walk -------------------------------------------------------------------------------------- */

static struct {
  object *table, *sums, *summed, *assign, *add;
} steps;

/* Put the key of a step together: what the rule is given of an entry, and the gradient. */
static int ask_step(asked *a, object *entry, object *g, object *here) {
  const int64_t *at = entries->offset;
  object *out = slot(entry, at[E_OUT]), *srcs = slot(entry, at[E_SRCS]), *metas = slot(entry, at[E_METAS]);
  object *parents = slot(entry, at[E_PARENTS]);
  const size count = PyTuple_Size(srcs);
  int64_t wanted = 0;
  if (!begin(a, here, 1) || count > 32 || PyTuple_Size(parents) != count || PyTuple_Size(metas) != count) return 0;
  if (!add(a, slot(entry, at[E_OP])) || !add(a, slot(entry, at[E_ATTRS])) || !add_node(a, g, NULL)) return 0;
  if (!(out == py.none ? add(a, out) : add_node(a, out, NULL)) || !add_count(a, count)) return 0;
  for (size i = 0; i < count; i++) {
    object *source = PyTuple_GetItem(srcs, i);
    if (!(source == py.none ? add(a, source) : add_node(a, source, NULL))) return 0;
    if (!add(a, PyTuple_GetItem(metas, i))) return 0;
    if (PyTuple_GetItem(parents, i) != py.none) wanted |= INT64_C(1) << i;
  }
  return add_count(a, wanted);
}

static void set(object *of, int64_t where, object *value) {
  object *before = slot(of, where);
  Py_IncRef(value);
  put(of, where, value);
  Py_DecRef(before);
}

/* Let go of the values that an entry keeps. */
static void free_entry(object *entry) {
  const int64_t *at = entries->offset;
  set(entry, at[E_SRCS], py.empty);
  set(entry, at[E_OUT], py.none);
  set(entry, at[E_PARENTS], py.empty);
  set(entry, at[E_FREED], py.true);
}

/* The sum of two gradients, held. Where such a sum was made before it is a Node and no more (known_steps.summed). */
static object *sum_of(object *before, object *more, object *here) {
  object *meta = slot(before, known_calls.node->offset[N_META]);
  object *sig = meta == slot(more, known_calls.node->offset[N_META]) ? PyDict_GetItem(steps.sums, meta) : NULL;
  const int parts = slot(before, offset.op) == steps.assign && slot(more, offset.op) == steps.assign;
  if (!sig || parts || slot(meta, offset.place) != PyDict_GetItem(here, known_calls.device))
    return PyObject_CallFunctionObjArgs(steps.summed, before, more, NULL);
  object *srcs = PyTuple_New(2), *values[] = {steps.add, srcs, py.empty, meta, sig};
  if (!srcs) return NULL;
  Py_IncRef(before), PyTuple_SetItem(srcs, 0, before);
  Py_IncRef(more), PyTuple_SetItem(srcs, 1, more);
  object *out = make(known_calls.node, values, 5);
  Py_DecRef(srcs);
  if (out && count_pending(here, 1)) return Py_DecRef(out), NULL;
  return out;
}

/* Add what a rule gave to the gradients of the entry's parents. */
static int hand_on(const making *m, object *parents, object *gradients, object *here) {
  for (int64_t i = 0; i < m->results; i++) {
    object *parent = PyTuple_GetItem(parents, i);
    if (parent == py.none || m->result[i] < 0) continue;
    object *value = m->value[m->result[i]], *before = PyDict_GetItem(gradients, parent);
    if (before) value = sum_of(before, value, here);
    const int failed = !value || PyDict_SetItem(gradients, parent, value);
    if (before) Py_DecRef(value);
    if (failed) return -1;
  }
  return 0;
}

static int make_step(object *entry, object *gradients, object *here, const asked *a, object *recipe) {
  making m;
  object *parents = slot(entry, entries->offset[E_PARENTS]);
  Py_IncRef(recipe); /* another thread may forget it */
  Py_IncRef(parents);
  int failed = PyDict_DelItem(gradients, entry);
  failed = make_all(&m, a, recipe) || failed || count_pending(here, m.nodes) || hand_on(&m, parents, gradients, here);
  end_making(&m);
  Py_DecRef(parents);
  Py_DecRef(recipe);
  return failed ? -1 : 1;
}

static int64_t size_of(object *node) {
  return PyLong_AsLongLong(slot(slot(node, known_calls.node->offset[N_META]), offset.elements));
}

/* Whether a gradient that was put together of parts (autograd/parts.py) is one part of a larger tensor. */
static int leaves_zeros(object *g) {
  object *srcs = slot(g, offset.srcs);
  object *below = PyTuple_GetItem(srcs, 0), *part = PyTuple_GetItem(srcs, 1);
  return slot(below, offset.op) != steps.assign && size_of(part) < size_of(g);
}

/* Take one entry's step: 0 where Python is to do it. `learn`: whether it is to be learnt. */
static int step(object *entry, object *gradients, object *here, int *learn) {
  const int64_t *at = entries->offset;
  if (!is_a(entry, entries->type)) return 0;
  if (slot(entry, at[E_FREED]) != py.false || slot(entry, at[E_HOOKS]) != py.none) return 0;
  object *g = PyDict_GetItem(gradients, entry);
  if (!g) return 1;
  if (slot(g, offset.op) == steps.assign && !leaves_zeros(g)) return 0;
  asked a = {.words = 0};
  object *op = slot(entry, at[E_OP]), *key = is_worth_looking(op) && ask_step(&a, entry, g, here) ? key_of(&a) : NULL;
  object *recipe = key ? look_up(steps.table, key, op) : NULL;
  const int known = recipe && is_a(recipe, known_calls.tuple);
  *learn = recipe && !known && recipe != py.false;
  const int done = known ? make_step(entry, gradients, here, &a, recipe) : 0;
  Py_DecRef(key);
  end_asked(&a);
  return PyErr_Occurred() ? -1 : done;
}

/* walk_steps(order, gradients, state, keep, other): the steps of a walk; `other(entry, learn)` takes those that are not
 * known. `keep`: whether entries keep their values. */
static object *walk_steps(object *self, object *const *of, size count) {
  for (size i = 0; i < PyList_Size(of[0]); i++) {
    object *entry = PyList_GetItem(of[0], i);
    Py_IncRef(entry);
    int learn = 0, done = step(entry, of[1], of[2], &learn);
    if (done > 0 && of[3] == py.false) free_entry(entry);
    if (!done) {
      object *other = PyObject_CallFunctionObjArgs(of[4], entry, learn ? py.true : py.false, NULL);
      done = other ? 1 : -1;
      Py_DecRef(other);
    }
    Py_DecRef(entry);
    if (done < 0) return NULL;
  }
  Py_IncRef(py.none);
  return py.none;
}

/* key_of_step(entry, gradient, state): its key and the Nodes that the rule is given, or None. */
static object *key_of_step(object *self, object *const *of, size count) {
  asked a = {.words = 0};
  object *out = ask_step(&a, of[0], of[1], of[2]) ? told(&a) : (Py_IncRef(py.none), py.none);
  end_asked(&a);
  return out;
}

static method walk_steps_method = {"walk_steps", walk_steps, FASTCALL, NULL};
static method step_key_method = {"key_of_step", key_of_step, FASTCALL, NULL};

/* What autograd/walk.py gives. */
object *PF_KEY_steps(object *things) {
  entries = PyLong_AsVoidPtr(PyTuple_GetItem(things, 0));
  object **to = &steps.table;
  for (size i = 1; i < PyTuple_Size(things); i++) to[i - 1] = PyTuple_GetItem(things, i);
  Py_IncRef(things);
  return pair(&walk_steps_method, &step_key_method);
}
