/* Running a known plan on a GPU, in one step: what engine/gpu.py does, whose runner has laid down a row for it. Where the
 * driver's functions can be called from C, kernels are given to it here; else one call into Python gives all launches.
 */

/* What lies where in a row, and in what it has of launches that are given from here. */
enum { GPU_PLAN, GPU_CLASSES, GPU_SIGS, GPU_STRIDES, GPU_MEMORY, GPU_RUNNER, GPU_GUARDS, GPU_START, GPU_LAUNCHES };
enum { DRIVER, KERNELS, STAGES, GPU_SLOTS, GPU_ADDED, GPU_MULTIPLES, LIBRARIES, NAMES, REMEMBER, FIXED_UNIFORMS, STAGE };
enum { RECORD_OF = STAGE + 1, WATCH };

typedef int (*launch_kernel)(intptr_t function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned lds,
                             intptr_t stream, void **arguments, void **more);
typedef int (*copy_bytes)(intptr_t to, intptr_t from, size_t bytes, intptr_t stream);
typedef int (*use_handle)(intptr_t handle); /* a stream to wait for, or a context to make current */
typedef struct {
  int64_t function, grid[3], block[3], lds, first;
} kernel; /* `first`: of its arguments */
typedef struct {
  int64_t kernels, library, first, count;
} stage; /* so many kernels, then a library's call, if it is not -1: with so many arguments */
typedef struct {
  int64_t launch, copy, fetch, wait, use, context, stream, uniforms;
} driver; /* addresses of functions, what they are called with, and where in the workspace uniforms lie that change */

/* Places behind those of inputs and outputs. */
enum { ARENA, SCRATCH, UNIFORMS, RECORD };

/* The lines of the ops whose values are checked. */
static object *lines_of(const walk *w) {
  object *out = PyList_New(0);
  for (size i = 0; i < w->insides && out; i++) {
    object *line = slot(w->inside[i].node, offset.line);
    if (line != py.none && slot(w->inside[i].op, offset.plain) == py.false && PyList_Append(out, line))
      return Py_DecRef(out), NULL;
  }
  return out;
}

static object *list_of(const int64_t *numbers, size count) {
  object *out = PyList_New(0);
  for (size i = 0; i < count && out; i++)
    if (append_number(out, numbers[i])) return Py_DecRef(out), NULL;
  return out;
}

/* Have Python give all launches. */
static int start_in_python(const bound *b, const attempt *a, object *start, object *const *numbers, size count) {
  object *places = list_of(b->call + SLOT, b->p->inputs + b->p->outputs), *given_numbers = PyList_New(0);
  object *lines = lines_of(&a->w);
  int failed = !places || !given_numbers || !lines;
  for (size i = 0; i < count && !failed; i++) failed = PyList_Append(given_numbers, numbers[i]);
  object *started = failed ? NULL : PyObject_CallFunctionObjArgs(start, places, given_numbers, lines, NULL);
  const int status = !started ? -1 : started == py.true ? RAN : LEFT_TO_PYTHON;
  Py_DecRef(places);
  Py_DecRef(given_numbers);
  Py_DecRef(lines);
  Py_DecRef(started);
  return status;
}

/* The addresses of all slots among the arguments of all kernels; LEFT_TO_PYTHON where memory misses the alignment that
 * they rely on. */
static int put_places(int64_t *to, const int64_t *places, object *slots, object *added, object *multiples) {
  const int64_t *slot_of = words(slots), *plus = words(added), *multiple = words(multiples);
  for (size i = 0; i < count_of_words(added); i++) {
    to[i] = plus[i] + (slot_of[i] ? places[slot_of[i] - 1] : 0);
    if (to[i] % multiple[i]) return LEFT_TO_PYTHON;
  }
  return RAN;
}

/* Give kernels to the driver; LEFT_TO_PYTHON where it refuses one: Python gets the same answer, and tells it. */
static int give_kernels(const driver *d, const kernel *kernels, size count, void **arguments) {
  const launch_kernel launch = (launch_kernel)(uintptr_t)d->launch;
  int failed = 0;
  void *thread = PyEval_SaveThread();
  for (size i = 0; i < count && !failed; i++) {
    const kernel k = kernels[i];
    failed = launch(k.function, k.grid[0], k.grid[1], k.grid[2], k.block[0], k.block[1], k.block[2], (unsigned)k.lds,
                    d->stream, arguments + k.first, NULL);
  }
  PyEval_RestoreThread(thread);
  return failed ? LEFT_TO_PYTHON : RAN;
}

static int give_all(object *launches, const int64_t *arguments, void **places) {
  const driver *d = (const driver *)words(item(launches, DRIVER));
  const kernel *next = (const kernel *)words(item(launches, KERNELS));
  const stage *stages = (const stage *)words(item(launches, STAGES));
  const size count = PyObject_Size(item(launches, STAGES)) / (size)sizeof *stages;
  int status = RAN;
  for (size i = 0; i < count && status > 0; next += stages[i++].kernels) {
    if (stages[i].kernels) status = give_kernels(d, next, stages[i].kernels, places);
    if (status <= 0 || stages[i].library < 0) continue;
    object *numbers = list_of(arguments + stages[i].first, stages[i].count);
    object *library = item(item(launches, LIBRARIES), stages[i].library);
    object *started = numbers ? PyObject_CallFunctionObjArgs(library, numbers, NULL) : NULL;
    if (!started) status = -1;
    Py_DecRef(numbers);
    Py_DecRef(started);
  }
  return status;
}

/* Call a function of Python's for what it does. */
static int call_python(object *function, object *one, object *other) {
  object *made = PyObject_CallFunctionObjArgs(function, one, other, NULL);
  Py_DecRef(made);
  return made ? RAN : -1;
}

/* Send uniforms that change to a place of the workspace. */
static int send_uniforms(const bound *b, const driver *d, object *stage, int64_t to) {
  const size bytes = b->p->uniforms * (size)sizeof(int64_t);
  object *wanted = PyLong_FromLongLong(bytes);
  object *staged = wanted ? PyObject_CallFunctionObjArgs(stage, wanted, NULL) : NULL;
  Py_DecRef(wanted);
  if (!staged) return -1;
  const int64_t from = PyLong_AsLongLong(item(staged, 1));
  memcpy((void *)(intptr_t)from, b->call + SLOT + b->p->slots, (size_t)bytes);
  const int failed = ((copy_bytes)(uintptr_t)d->copy)(to, from, (size_t)bytes, d->stream);
  Py_DecRef(staged);
  return failed ? LEFT_TO_PYTHON : RAN;
}

/* Uniforms and the error record. `record` is held. */
static int bind_own(const bound *b, object *launches, object *lines, object **record) {
  const driver *d = (const driver *)words(item(launches, DRIVER));
  int64_t *own = b->call + SLOT + b->p->inputs + b->p->outputs;
  object *fixed = item(launches, FIXED_UNIFORMS), *record_of = item(launches, RECORD_OF);
  if (((use_handle)(uintptr_t)d->use)(d->context)) return LEFT_TO_PYTHON;
  own[UNIFORMS] = fixed != py.none ? address_of(fixed) : own[ARENA] + d->uniforms;
  own[RECORD] = 0;
  if (record_of != py.none) {
    *record = PyObject_CallFunctionObjArgs(record_of, lines, NULL);
    if (!*record) return -1;
    own[RECORD] = address_of(*record);
  }
  if (!b->p->uniforms || fixed != py.none) return RAN;
  return send_uniforms(b, d, item(launches, STAGE), own[UNIFORMS]);
}

/* Give all launches from here. No bytecode runs between the look at the arguments and the first library's call. */
static int start_here(const bound *b, const attempt *a, object *launches) {
  object *record = NULL, *lines = lines_of(&a->w);
  const size count = count_of_words(item(launches, GPU_ADDED));
  int status = lines ? bind_own(b, launches, lines, &record) : -1;
  int64_t *arguments = malloc((size_t)(count + 1) * (sizeof *arguments + sizeof(void *)));
  void **at = (void **)(arguments + count);
  if (!arguments) PyErr_NoMemory(), status = -1;
  if (status > 0)
    status = put_places(arguments, b->call + SLOT, item(launches, GPU_SLOTS), item(launches, GPU_ADDED),
                        item(launches, GPU_MULTIPLES));
  if (status > 0) status = call_python(item(launches, REMEMBER), item(launches, NAMES), NULL);
  for (size i = 0; status > 0 && i < count; i++) at[i] = arguments + i;
  if (status > 0) status = give_all(launches, arguments, at);
  free(arguments);
  if (status > 0 && record) status = call_python(item(launches, WATCH), record, lines);
  Py_DecRef(record);
  Py_DecRef(lines);
  return status;
}

static int run_on_gpu(attempt *a, object *known, object *const *values, object *const *numbers, object *const *outputs) {
  const size count = a->w.leaves - (numbers - values);
  const int fit = guards_fit(item(known, GPU_GUARDS));
  bound b;
  if (fit <= 0) return fit;
  if (begin_run(&b, known)) return -1;
  object *launches = item(known, GPU_LAUNCHES);
  int status = bind_uniforms(&b, numbers, count, NULL);
  if (status > 0) status = bind_memory(&b, values, item(known, GPU_MEMORY), NULL);
  if (status > 0 && launches != py.none) status = start_here(&b, a, launches);
  else if (status > 0) status = start_in_python(&b, a, item(known, GPU_START), numbers, count);
  if (status > 0) status = take_results(&b, a, outputs, item(known, GPU_SIGS), item(known, GPU_STRIDES));
  end_run(&b);
  return status;
}

/* fetch(driver, to, from, bytes): get a few bytes from the GPU, waiting for all that its stream was given; whether that
 * could be done. */
static object *fetch(object *self, object *const *args, size count) {
  const driver *d = (const driver *)words(args[0]);
  const int64_t to = PyLong_AsLongLong(args[1]), from = PyLong_AsLongLong(args[2]), bytes = PyLong_AsLongLong(args[3]);
  if (PyErr_Occurred()) return NULL;
  void *thread = PyEval_SaveThread();
  int failed = ((use_handle)(uintptr_t)d->use)(d->context);
  failed = failed || ((copy_bytes)(uintptr_t)d->fetch)(to, from, (size_t)bytes, d->stream);
  failed = failed || ((use_handle)(uintptr_t)d->wait)(d->stream);
  PyEval_RestoreThread(thread);
  object *out = failed ? py.false : py.true;
  Py_IncRef(out);
  return out;
}

static method fetch_method = {"fetch", fetch, FASTCALL, NULL};

/* The function above, for Python. */
object *PF_KEY_fetch(void) { return PyCFunction_NewEx(&fetch_method, NULL, NULL); }
