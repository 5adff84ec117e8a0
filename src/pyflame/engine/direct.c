/* Running a plan of the CPU on memory of the caller's, in one step, where a row says how (transform/direct.py): what the
 * torch bridge does for a compiled graph. Arguments lie where their tensors say, results in tensors that are made here.
 * What is not as it was when the row was laid down is left to Python, before anything has changed.
 */

/* What lies where in a row, and in what it has of an argument. */
enum { DIRECT_PLAN, DIRECT_CLASSES, DIRECT_POOL, DIRECT_FIXED, DIRECT_SOURCES, DIRECT_NUMBERS, DIRECT_REPORT };
enum { DIRECT_GUARDS = 7, DIRECT_ARGUMENTS, DIRECT_MAKERS, DIRECT_RESULTS };
enum { DIRECT_AT, DIRECT_STRIDES, DIRECT_MASK };

static struct {
  object *data_ptr, *stride; /* names of methods */
} tensors;

static int64_t data_of(object *tensor) {
  object *found = PyObject_CallMethodObjArgs(tensor, tensors.data_ptr, NULL);
  const int64_t out = found ? PyLong_AsLongLong(found) : 0;
  Py_DecRef(found);
  return out;
}

/* Whether a tensor has these strides. */
static int lies_so(object *tensor, object *strides) {
  enum { EQUAL = 2 };
  object *found = PyObject_CallMethodObjArgs(tensor, tensors.stride, NULL);
  const int same = found ? PyObject_RichCompareBool(found, strides, EQUAL) : -1;
  Py_DecRef(found);
  return same;
}

/* Where the arguments lie. */
static int find_arguments(object *wanted, object *args, int64_t *places) {
  for (size i = 0; i < PyTuple_Size(wanted); i++) {
    object *of = item(wanted, i), *tensor = PyList_GetItem(args, PyLong_AsLongLong(item(of, DIRECT_AT)));
    const int same = lies_so(tensor, item(of, DIRECT_STRIDES));
    if (same <= 0) return same < 0 ? -1 : LEFT_TO_PYTHON;
    places[i] = data_of(tensor);
    if (PyErr_Occurred()) return -1;
    if (places[i] & PyLong_AsLongLong(item(of, DIRECT_MASK))) return LEFT_TO_PYTHON;
  }
  return RAN;
}

/* Tensors for the results, and their addresses. */
static object *make_tensors(object *makers, int64_t *places) {
  object *out = PyList_New(0);
  for (size i = 0; out && i < PyTuple_Size(makers); i++) {
    object *made = PyObject_CallFunctionObjArgs(item(makers, i), NULL);
    if (made) places[i] = data_of(made);
    const int failed = !made || PyErr_Occurred() || PyList_Append(out, made);
    Py_DecRef(made);
    if (failed) return Py_DecRef(out), NULL;
  }
  return out;
}

/* The addresses of all slots. `arguments`: where those lie; results are bound already. */
static int bind_places(bound *b, object *row, const int64_t *arguments) {
  const plan *p = b->p;
  const int64_t *fixed = words(item(row, DIRECT_FIXED)), *from = words(item(row, DIRECT_SOURCES));
  const size arena = p->inputs + p->outputs;
  int64_t *places = b->call + SLOT;
  for (size i = 0; i < p->inputs; i++) places[i] = from[i] < 0 ? fixed[i] : arguments[from[i]];
  if (take(item(row, DIRECT_POOL), b->classes, b->fresh)) return -1;
  if (b->fresh[0]) places[arena] = address_of(b->fresh[0]);
  places[p->slots - 1] = places[p->slots - 2] + p->arena;
  return RAN;
}

/* What the caller gets: memory that was made, arguments, and things that are always the same. */
static object *direct_results(object *row, object *args, object *made) {
  enum { MADE, ARGUMENT };
  object *wanted = item(row, DIRECT_RESULTS), *out = PyList_New(0);
  for (size i = 0; out && i < PyTuple_Size(wanted); i++) {
    object *of = item(wanted, i), *thing = item(of, 1);
    const int64_t kind = PyLong_AsLongLong(item(of, 0));
    if (kind == MADE) thing = PyList_GetItem(made, PyLong_AsLongLong(thing));
    else if (kind == ARGUMENT) thing = PyList_GetItem(args, PyLong_AsLongLong(thing));
    if (PyList_Append(out, thing)) return Py_DecRef(out), NULL;
  }
  return out;
}

/* Run the plan of a row; the results, or NULL: an error, or left to Python. */
static object *run_direct(bound *b, object *row, object *args, int64_t *arguments) {
  object *numbers = item(row, DIRECT_NUMBERS), *made = NULL, *out = NULL;
  int status = find_arguments(item(row, DIRECT_ARGUMENTS), args, arguments);
  if (status > 0) status = bind_given(b, numbers, NULL, NULL);
  if (status <= 0 || !(made = make_tensors(item(row, DIRECT_MAKERS), b->call + SLOT + b->p->inputs))) return NULL;
  status = bind_places(b, row, arguments);
  if (status > 0) status = launch(b);
  if (status == LEFT_TO_PYTHON) report(b, item(row, DIRECT_REPORT));
  if (status > 0) out = direct_results(row, args, made);
  Py_DecRef(made);
  return out;
}

static object *direct_by(object *row, object *args) {
  if (guards_fit(item(row, DIRECT_GUARDS)) <= 0) return NULL;
  int64_t *arguments = malloc((size_t)(PyTuple_Size(item(row, DIRECT_ARGUMENTS)) + 1) * sizeof *arguments);
  if (!arguments) return PyErr_NoMemory();
  bound b;
  object *out = NULL;
  if (!begin_run(&b, row)) {
    out = run_direct(&b, row, args, arguments);
    end_run(&b);
  }
  free(arguments);
  if (out && PyList_SetSlice(args, 0, PyList_Size(args), NULL)) return Py_DecRef(out), NULL;
  return out;
}

/* direct(rows, args, missed): the results of a plan; `args`, a list, is then empty. */
static object *direct(object *self, object *const *args, size count) {
  return by_some_row(direct_by, args[0], args[1], args[2]);
}

static method direct_method = {"direct", direct, FASTCALL, NULL};

/* The function above, for Python. `names`: of methods of tensors, in their order at the top. */
object *PF_KEY_direct(object *names) {
  tensors.data_ptr = PyTuple_GetItem(names, 0);
  tensors.stride = PyTuple_GetItem(names, 1);
  Py_IncRef(names);
  return PyCFunction_NewEx(&direct_method, NULL, NULL);
}
