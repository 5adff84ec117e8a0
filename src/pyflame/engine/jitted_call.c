/* Calling a jitted function in one step: what transform/jit.py does, where a call before has left a row that says how
 * (transform/jitted_call.py). Arguments, modes, guards and state must be as they were then; then the plan runs, or its
 * captured graph is replayed, and results are made. What is not as it was is left to Python, before anything has changed.
 */

/* What lies where in a row, and in what it has of an argument, of state, and of a run on the CPU or a GPU. */
enum { ARGUMENTS, MODES, GUARDS, LOCK, STATE, INPUTS, FIXED, ON_CPU, ON_GPU, RESULTS, BUILD };
enum { KIND, SIG, TAPED, UNSHARED };
enum { CELLS, CELL_NODES, OWNERS, GRADIENTS, PRESENT, GRADIENT_NODES, THINGS, COUNTS };
enum { POOL = 2, NUMBERS, REPORT };
enum { TURNS, COPYING, GRAPH_PLACES, SOURCES, BEHIND, ARGUMENT_SLOTS, ADDED, MULTIPLES };
enum { AT, START, STRIDES, META, SIGNATURE };

static struct {
  object *modes;          /* of the thread */
  object *nodes, *tensors; /* functions that make them */
  object *dict, *values, *left, *storages, *replay; /* names of attributes */
} calls;
static struct {
  int64_t node, entry, grad, link; /* of a Tensor */
} tensor_at;

/* A call under way. */
typedef struct {
  object *row, *args;
  object **values; /* of the plan's inputs; held */
  size inputs;
  bound run;        /* on the CPU */
  object *storages; /* of a GPU's results; held, and each of them, too */
} attempted;

/* Whether an argument is as it must be: a tensor of the same layout, any object of a type, or the same object. */
static int argument_fits(object *wanted, object *found) {
  object *kind = item(wanted, KIND);
  if (kind == py.none) return found == item(wanted, SIG);
  if (!is_a(found, kind)) return 0;
  if (PyTuple_Size(wanted) <= SIG) return 1;
  object *node = slot(found, tensor_at.node);
  if (!node || PyLong_AsLongLong(slot(node, offset.sig)) != PyLong_AsLongLong(item(wanted, SIG))) return 0;
  return (slot(found, tensor_at.entry) != py.none) == (item(wanted, TAPED) != py.false) &&
         (item(wanted, UNSHARED) == py.false || slot(found, tensor_at.link) == py.none);
}

static int arguments_fit(const attempted *a) {
  object *wanted = item(a->row, ARGUMENTS);
  const size count = PyTuple_Size(wanted);
  if (PyTuple_Size(a->args) != count) return 0;
  for (size i = 0; i < count; i++)
    if (!argument_fits(item(wanted, i), item(a->args, i))) return 0;
  return 1;
}

/* Whether the thread's modes are the same: names and values in turns. */
static int modes_fit(object *modes) {
  object *here = PyObject_GetAttr(calls.modes, calls.dict);
  if (!here) return -1;
  int fit = 1;
  for (size i = 0; i < PyTuple_Size(modes) && fit; i += 2)
    fit = PyDict_GetItem(here, item(modes, i)) == item(modes, i + 1);
  Py_DecRef(here);
  return fit;
}

static int each_has(object *holders, int64_t where, object *wanted) {
  const size count = PyList_Size(wanted);
  if (PyList_Size(holders) != count) return 0;
  for (size i = 0; i < count; i++)
    if (slot(PyList_GetItem(holders, i), where) != PyList_GetItem(wanted, i)) return 0;
  return 1;
}

static int is_among(object *node, object *nodes) {
  for (size i = 0; i < PyList_Size(nodes); i++)
    if (PyList_GetItem(nodes, i) == node) return 1;
  return 0;
}

/* Whether state is where the call before has left it, and nobody else holds what is overwritten (transform/steady.py). */
static int state_fits(const attempted *a, object *state) {
  if (!each_has(item(state, CELLS), tensor_at.node, item(state, CELL_NODES)) ||
      !each_has(item(state, OWNERS), tensor_at.grad, item(state, GRADIENTS)) ||
      !each_has(item(state, PRESENT), tensor_at.node, item(state, GRADIENT_NODES)))
    return 0;
  object *things = item(state, THINGS);
  const int64_t *counts = words(item(state, COUNTS));
  for (size i = 0; i < PyList_Size(things); i++)
    if (references(PyList_GetItem(things, i)) != counts[i]) return 0;
  object *wanted = item(a->row, ARGUMENTS);
  for (size i = 0; i < PyTuple_Size(wanted); i++) {
    if (PyTuple_Size(item(wanted, i)) <= TAPED) continue;
    object *node = slot(item(a->args, i), tensor_at.node);
    if (is_among(node, item(state, CELL_NODES)) || is_among(node, item(state, GRADIENT_NODES))) return 0;
  }
  return 1;
}

/* The values of the plan's inputs: arguments', and `fixed` ones in a list. */
static int gather(attempted *a, object *fixed) {
  if (fixed == py.none) return LEFT_TO_PYTHON;
  const int64_t *from = words(item(a->row, INPUTS));
  a->inputs = PyList_Size(fixed);
  a->values = calloc((size_t)(a->inputs + 1), sizeof *a->values);
  if (!a->values) return PyErr_NoMemory(), -1;
  for (size i = 0; i < a->inputs; i++) {
    if (from[i] < 0) a->values[i] = PyList_GetItem(fixed, i);
    else a->values[i] = slot(slot(item(a->args, from[i]), tensor_at.node), offset.data);
    Py_IncRef(a->values[i]);
  }
  return RAN;
}

/* The numbers of a run: of each the argument that it is, or -1 for one of `numbers`. Without `args` all are those. */
static int bind_given(bound *b, object *numbers, const int64_t *from, object *args) {
  const size count = PyTuple_Size(numbers);
  object **now = malloc((size_t)(count + 1) * sizeof *now);
  if (!now) return PyErr_NoMemory(), -1;
  for (size i = 0; i < count; i++) now[i] = !args || from[i] < 0 ? item(numbers, i) : item(args, from[i]);
  const int status = bind_uniforms(b, now, count, NULL);
  free(now);
  return status;
}

/* Raise what a run has left in its record. */
static void report(const bound *b, object *raise) {
  object *record = PyBytes_FromStringAndSize((const char *)(b->call + ERROR), 3 * sizeof(int64_t));
  object *said = record ? PyObject_CallFunctionObjArgs(raise, record, NULL) : NULL;
  Py_DecRef(record);
  if (said) PyErr_BadInternalCall(); /* it raises what the record says */
  Py_DecRef(said);
}

static int on_cpu(attempted *a, object *known) {
  const int64_t *from = words(item(item(known, NUMBERS), 0));
  if (begin_run(&a->run, known)) return -1;
  int status = bind_given(&a->run, item(item(known, NUMBERS), 1), from, a->args);
  if (status > 0) status = bind_memory(&a->run, a->values, item(known, POOL), NULL);
  if (status <= 0 || (status = launch(&a->run)) != LEFT_TO_PYTHON) return status;
  report(&a->run, item(known, REPORT));
  return -1;
}

static int64_t place_of(object *value) {
  return address_of(slot(value, offset.storage)) + PyLong_AsLongLong(slot(value, offset.start));
}

/* Put the addresses of inputs and results among the arguments of a kernel (engine/one_launch.py). */
static int fill_in(const attempted *a, object *known, object *ready, object *storages) {
  const int64_t *sources = words(item(known, SOURCES)), *behind = words(item(known, BEHIND));
  const size count = count_of_words(item(known, SOURCES)), more = count_of_words(item(known, BEHIND));
  object *address = PyObject_GetAttr(ready, given.address);
  int64_t *to = address ? (int64_t *)(uintptr_t)PyLong_AsLongLong(address) : NULL;
  int64_t *places = calloc((size_t)(count + more + 1), sizeof *places);
  Py_DecRef(address);
  if (!places) PyErr_NoMemory();
  if (!places || !to) return free(places), -1;
  for (size i = 0; i < count; i++) {
    if (sources[i] < 0) places[i] = address_of(PyList_GetItem(storages, ~sources[i]));
    else places[i] = place_of(a->values[sources[i]]);
  }
  memcpy(places + count, behind, (size_t)more * sizeof *places);
  int status = PyErr_Occurred() ? -1 : RAN;
  if (status > 0)
    status = put_places(to, places, item(known, ARGUMENT_SLOTS), item(known, ADDED), item(known, MULTIPLES));
  free(places);
  return status;
}

/* Replay the graph of a turn, or give its launch, if nobody holds its results: only its own list of them does. */
static int take_turn(attempted *a, object *known, object *ready) {
  object *left = PyObject_GetAttr(ready, calls.left);
  object *storages = left ? PyObject_GetAttr(ready, calls.storages) : NULL;
  int status = storages ? RAN : -1;
  const size count = storages ? PyList_Size(storages) : 0;
  for (size i = 0; i < count; i++)
    if (references(PyList_GetItem(storages, i)) > 1) status = VIEWS; /* the next turn's, perhaps */
  if (status == RAN && PyLong_AsLongLong(left) >= 0) status = LEFT_TO_PYTHON; /* it is to be compared */
  if (status == RAN && PyTuple_Size(known) > SOURCES) status = fill_in(a, known, ready, storages);
  if (status == RAN) {
    for (size i = 0; i < count; i++) Py_IncRef(PyList_GetItem(storages, i)); /* a finaliser may call the function, too */
    a->storages = storages;
    storages = NULL;
    object *replay = PyObject_GetAttr(ready, calls.replay);
    object *done = replay ? PyObject_CallFunctionObjArgs(replay, NULL) : NULL;
    if (!done) status = -1;
    Py_DecRef(done);
    Py_DecRef(replay);
  }
  Py_DecRef(storages);
  Py_DecRef(left);
  return status;
}

/* The graphs that read the arguments where they lie. NULL without an error: there are none. */
static object *turns_here(const attempted *a, object *known) {
  object *places = item(known, GRAPH_PLACES);
  const size count = PyTuple_Size(places);
  object *key = PyTuple_New(count);
  for (size i = 0; key && i < count; i++) {
    object *number = PyLong_FromLongLong(place_of(a->values[PyLong_AsLongLong(item(places, i))]));
    PyTuple_SetItem(key, i, number);
  }
  object *turns = key && !PyErr_Occurred() ? PyDict_GetItem(item(known, TURNS), key) : NULL;
  Py_DecRef(key);
  return turns;
}

/* Replay a graph, or give the one launch to the device. */
static int on_gpu(attempted *a, object *known) {
  object *turns = PyTuple_Size(known) > SOURCES ? item(known, TURNS) : turns_here(a, known);
  if (!turns) return PyErr_Occurred() ? -1 : LEFT_TO_PYTHON;
  int status = VIEWS;
  for (size i = 0; status == VIEWS && i < PyList_Size(turns); i++) {
    object *ready = PyList_GetItem(turns, i);
    status = ready == py.none || ready == item(known, COPYING) ? LEFT_TO_PYTHON : take_turn(a, known, ready);
  }
  return status == VIEWS ? LEFT_TO_PYTHON : status;
}

/* A tensor over a result's memory. */
static object *result_tensor(const attempted *a, object *of) {
  const size at = PyLong_AsLongLong(item(of, AT));
  object *storage;
  int64_t start = PyLong_AsLongLong(item(of, START));
  if (a->storages) storage = PyList_GetItem(a->storages, at);
  else {
    const int64_t *place = result_places(a->run.p) + 2 * at;
    storage = a->run.storages[place[0]];
    start = a->run.starts[place[0]] + place[1];
  }
  object *value = value_of(storage, start, item(of, STRIDES)), *tensor = NULL, *node = NULL;
  object *sig = item(of, SIGNATURE), *meta = item(of, META);
  if (value) node = PyObject_CallFunctionObjArgs(calls.nodes, py.leaf, py.empty, py.empty, meta, sig, value, NULL);
  if (node) tensor = PyObject_CallFunctionObjArgs(calls.tensors, node, NULL);
  Py_DecRef(value);
  Py_DecRef(node);
  return tensor;
}

static object *results(const attempted *a) {
  object *wanted = item(a->row, RESULTS), *out = PyList_New(0);
  for (size i = 0; out && i < PyTuple_Size(wanted); i++) {
    object *tensor = result_tensor(a, item(wanted, i));
    const int failed = !tensor || PyList_Append(out, tensor);
    Py_DecRef(tensor);
    if (failed) return Py_DecRef(out), NULL;
  }
  return out;
}

static void end_call(attempted *a) {
  if (a->run.call) end_run(&a->run);
  for (size i = 0; a->values && i < a->inputs; i++) Py_DecRef(a->values[i]);
  free(a->values);
  for (size i = 0; a->storages && i < PyList_Size(a->storages); i++) Py_DecRef(PyList_GetItem(a->storages, i));
  Py_DecRef(a->storages);
}

/* The results of a call, all checks of which but those under the lock have passed; NULL: an error, or left to Python. */
static object *call_locked(attempted *a) {
  object *state = item(a->row, STATE), *fixed = item(a->row, FIXED), *out = NULL;
  /* another thread may have written to something while this one waited for the lock */
  if (!arguments_fit(a) || (state != py.none && !state_fits(a, state))) return NULL;
  object *values = state == py.none ? fixed : PyObject_GetAttr(fixed, calls.values);
  if (!values) return NULL;
  int status = gather(a, values);
  object *cpu = item(a->row, ON_CPU), *gpu = item(a->row, ON_GPU);
  if (status > 0) status = cpu != py.none ? on_cpu(a, cpu) : on_gpu(a, gpu);
  if (status > 0) out = results(a);
  end_call(a);
  if (state != py.none) Py_DecRef(values);
  return out;
}

/* What a call returns by this row; NULL: an error, or left to Python. */
static object *call_by(object *row, object *args) {
  attempted a = {.row = row, .args = args};
  if (!arguments_fit(&a) || modes_fit(item(row, MODES)) <= 0 || guards_fit(item(row, GUARDS)) <= 0) return NULL;
  object *locked = PyIter_Next(item(row, LOCK)), *found = locked ? call_locked(&a) : NULL, *build = item(row, BUILD);
  Py_DecRef(locked);
  if (!found) return NULL;
  object *out = build == py.none ? PyList_GetItem(found, 0) : PyObject_CallFunctionObjArgs(build, found, NULL);
  if (build == py.none) Py_IncRef(out);
  Py_DecRef(found);
  return out;
}

/* What one of the rows gives, the first that fits; `missed` where none does. */
static object *by_some_row(object *(*by)(object *row, object *args), object *rows, object *args, object *missed) {
  object *out = NULL;
  for (size i = 0; i < PyTuple_Size(rows) && !out && !PyErr_Occurred(); i++) out = by(item(rows, i), args);
  if (out || PyErr_Occurred()) return out;
  Py_IncRef(missed);
  return missed;
}

/* call(rows, args, missed): what a jitted function returns. */
static object *call(object *self, object *const *args, size count) {
  return by_some_row(call_by, args[0], args[1], args[2]);
}

static method jitted_method = {"call", call, FASTCALL, NULL};

/* The function above, for Python. `things` and `places`: in their order at the top. */
object *PF_KEY_call(object *things, const int64_t *places) {
  object **to = (object **)&calls;
  for (size_t i = 0; i < sizeof calls / sizeof *to; i++) to[i] = PyTuple_GetItem(things, (size)i);
  Py_IncRef(things);
  memcpy(&tensor_at, places, sizeof tensor_at);
  return PyCFunction_NewEx(&jitted_method, NULL, NULL);
}
