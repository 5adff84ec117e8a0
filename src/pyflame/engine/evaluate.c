/* An evaluation, as engine/evaluate.py does it: what is in memory already is taken as it lies, a graph whose plan is known
 * runs (known.c), and where many parts are put together, as items of a dataset are, the parts are evaluated first, as
 * many together as come in any number of them. What none of this does is left to Python, as far as it is left. MANY and
 * KINDS are those of portions.py, SMALL is that of host.py: native.py puts them in front.
 */

/* --- a cat of what is in memory: `joined` in host.py ---------------------------------------------------------------- */

/* Whether a single node is better put together in memory, if all parts lie there. */
static int may_be_joined(object *node) {
  object *srcs = slot(node, offset.srcs);
  if (slot(node, offset.op) != py.cat) return 0;
  for (size i = 0; i < PyTuple_Size(srcs); i++) {
    object *source = PyTuple_GetItem(srcs, i);
    while (kind_of(source) == py.a_movement) source = PyTuple_GetItem(slot(source, offset.srcs), 0);
    if (kind_of(source) != py.a_leaf) return 0;
  }
  return 1;
}

/* The Value of a node whose elements lie in memory one behind the other; NULL: they do not, or only Python can tell. */
static object *dense(object *node) {
  while (slot(node, offset.op) == py.reshape) node = PyTuple_GetItem(slot(node, offset.srcs), 0);
  object *value = slot(node, offset.data);
  if (slot(node, offset.op) != py.leaf || !in_memory(value) || slot(value, offset.strides) != py.none) return NULL;
  return value;
}

static int64_t elements_of(object *node) { return PyLong_AsLongLong(slot(slot(node, offset.meta), offset.elements)); }

/* How many bytes the elements of a cat take of which each part lies in one piece; 0: that is left to Python. */
static int64_t bytes_to_join(object *node) {
  object *srcs = slot(node, offset.srcs), *meta = slot(node, offset.meta), *dtype = slot(meta, offset.dtype);
  const int64_t axis = PyLong_AsLongLong(PyTuple_GetItem(slot(node, offset.attrs), 0));
  for (int64_t i = 0; i < axis; i++)
    if (PyLong_AsLongLong(PyTuple_GetItem(slot(meta, offset.shape), i)) != 1) return 0;
  for (size i = 0; i < PyTuple_Size(srcs); i++) {
    object *source = PyTuple_GetItem(srcs, i);
    if (slot(slot(source, offset.meta), offset.dtype) != dtype || !dense(source)) return 0;
  }
  object *width = PyObject_GetAttr(dtype, given.itemsize);
  const int64_t bytes = width ? elements_of(node) * PyLong_AsLongLong(width) : 0;
  Py_DecRef(width);
  return bytes <= SMALL ? bytes : 0;
}

/* Copy the parts of a cat to memory of its own. */
static int copy_parts(object *node, object *storage, int64_t bytes) {
  object *srcs = slot(node, offset.srcs);
  char *to = (char *)(intptr_t)address_of(storage);
  const int64_t width = bytes / elements_of(node);
  for (size i = 0; i < PyTuple_Size(srcs); i++) {
    object *source = PyTuple_GetItem(srcs, i), *value = dense(source);
    if (!value) return PyErr_BadInternalCall(), -1;
    const char *from = (const char *)(intptr_t)address_of(slot(value, offset.storage));
    const int64_t taken = elements_of(source) * width;
    if (PyErr_Occurred()) return -1;
    memcpy(to, from + PyLong_AsLongLong(slot(value, offset.start)), (size_t)taken);
    to += taken;
  }
  return 0;
}

static int join(object *node) {
  const int64_t bytes = bytes_to_join(node);
  if (!bytes) return PyErr_Occurred() ? -1 : LEFT_TO_PYTHON;
  object *wanted = PyLong_FromLongLong(bytes);
  object *storage = wanted ? PyObject_CallFunctionObjArgs(given.allocate, wanted, NULL) : NULL;
  result made = {node, NULL, NULL};
  if (storage && !copy_parts(node, storage, bytes)) {
    made.value = value_of(storage, 0, py.none);
    made.sig = PyObject_CallFunctionObjArgs(given.signature, given.leaf, slot(node, offset.meta), py.none, NULL);
  }
  const int failed = !made.value || !made.sig || become_leaves(&made, 1);
  Py_DecRef(made.value);
  Py_DecRef(made.sig);
  Py_DecRef(storage);
  Py_DecRef(wanted);
  return failed ? -1 : VIEWS;
}

/* --- many parts that are put together: `parts_of_joined` in portions.py --------------------------------------------- */

static uint64_t mixed(uint64_t number) {
  number = (number ^ number >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
  number = (number ^ number >> 27) * UINT64_C(0x94D049BB133111EB);
  return number ^ number >> 31;
}

/* Whether a graph without a plan is one of the last few: then it is Python's to count how often it comes, and to plan it
 * as a whole at last. */
static int came_lately(const walk *w) {
  static uint64_t last[8];
  static size next;
  enum { KEPT = sizeof last / sizeof *last };
  uint64_t key = 0;
  for (size i = 0; i < w->words; i++) key = mixed(key + (uint64_t)w->key[i]);
  for (size i = 0; i < KEPT; i++)
    if (last[i] == key) return 1;
  last[next++ % KEPT] = key;
  return 0;
}

/* Of each node a number for all that it is made of. */
static void number_below(const walk *w, uint64_t *below) {
  const int64_t *word = w->key;
  for (size i = 0; i < w->met; i++) {
    below[i] = mixed((uint64_t)*word++);
    const size count = i < w->leaves ? 0 : PyTuple_Size(w->inside[i - w->leaves].srcs);
    for (size n = 0; n < count; n++) below[i] = mixed(below[i] + below[*word++]);
  }
}

static int is_wide(const inner *of) { return of->op == py.cat && PyTuple_Size(of->srcs) >= MANY; }

/* Put nodes into groups that come in any number of them: of MANY, and of powers of two. */
static int group(object *groups, object *alike) {
  size begin = 0, left = PyList_Size(alike);
  while (left) {
    size count = MANY;
    while (count > left) count /= 2;
    object *one = PyList_New(0);
    int failed = !one;
    for (size i = 0; i < count && !failed; i++) failed = PyList_Append(one, PyList_GetItem(alike, begin + i));
    failed = failed || PyList_Append(groups, one);
    Py_DecRef(one);
    if (failed) return -1;
    begin += count, left -= count;
  }
  return 0;
}

/* Sort the parts of a wide node by what they are made of. How many kinds there are; one too many: hardly two are alike. */
static int sort_parts(const walk *w, object *srcs, const uint64_t *below, char *seen, object **alike) {
  uint64_t kind[KINDS];
  int kinds = 0;
  for (size i = 0; i < PyTuple_Size(srcs); i++) {
    object *part = stored_for(PyTuple_GetItem(srcs, i));
    if (!part || slot(part, offset.op) == py.uninitialized) continue;
    const int64_t at = find(w, part)->position;
    if (at < w->leaves || seen[at]) continue;
    seen[at] = 1;
    int n = 0;
    while (n < kinds && kind[n] != below[at]) n++;
    if (n == KINDS) return KINDS + 1;
    if (n == kinds && !(alike[kinds] = PyList_New(0))) return -1;
    if (n == kinds) kind[kinds++] = below[at];
    if (PyList_Append(alike[n], part)) return -1;
  }
  return kinds;
}

/* The groups to evaluate before a wide node, and that itself where others read it. */
static int add_groups(const walk *w, const inner *of, int64_t read, const uint64_t *below, char *seen, object *groups) {
  object *alike[KINDS + 1] = {0};
  memset(seen, 0, (size_t)w->met);
  const int kinds = sort_parts(w, of->srcs, below, seen, alike);
  int failed = kinds < 0;
  for (int i = 0; kinds <= KINDS && i < kinds && !failed; i++) failed = group(groups, alike[i]);
  if (kinds <= KINDS && read && !failed) {
    object *one = PyList_New(0);
    failed = !one || PyList_Append(one, of->node) || PyList_Append(groups, one);
    Py_DecRef(one);
  }
  for (int i = 0; i < KINDS; i++) Py_DecRef(alike[i]);
  return failed ? -1 : 0;
}

/* Lists of nodes to evaluate together, in turn; none where nothing wide is put together. */
static object *parts_of_joined(const walk *w) {
  size first = 0;
  while (first < w->insides && !is_wide(&w->inside[first])) first++;
  object *groups = PyList_New(0);
  if (!groups || first == w->insides || came_lately(w)) return groups;
  uint64_t *below = malloc((size_t)w->met * (sizeof *below + 1));
  if (!below) return Py_DecRef(groups), PyErr_NoMemory();
  number_below(w, below);
  int failed = 0;
  for (size i = first; i < w->insides && !failed; i++)
    if (is_wide(&w->inside[i]))
      failed = add_groups(w, &w->inside[i], w->reads[w->leaves + i], below, (char *)(below + w->met), groups);
  free(below);
  return failed ? (Py_DecRef(groups), NULL) : groups;
}

/* --- an evaluation --------------------------------------------------------------------------------------------------- */

/* What is left to compute of some nodes: not leaves, and not views of what is in memory, which become leaves here. */
static object *left_of(attempt *a, object *nodes) {
  object *left = PyList_New(0);
  int failed = !left;
  for (size i = 0; i < PyList_Size(nodes) && !failed; i++) {
    object *node = PyList_GetItem(nodes, i), *kind = kind_of(node);
    int64_t sig;
    if (kind == py.a_leaf || kind == py.a_number) continue;
    const int view = kind == py.a_movement ? is_view(&a->w, node, slot(node, offset.op), &sig) : 0;
    failed = view < 0 || (!view && PyList_Append(left, node));
  }
  if (!failed) failed = become_leaves(a->views, a->viewed);
  forget(a->views, &a->viewed);
  if (failed) return Py_DecRef(left), NULL;
  return left;
}

/* Evaluate nodes in one step, if that can be. `parts`: as in `run_known`. */
static int try_at_once(object *nodes, object *plans, int on_host, object **parts) {
  attempt a = {.w = {.view = is_view}};
  a.w.caller = &a;
  object *left = left_of(&a, nodes);
  int status = !left ? -1 : PyList_Size(left) ? LEFT_TO_PYTHON : VIEWS;
  if (status == LEFT_TO_PYTHON) {
    object *node = PyList_Size(left) == 1 ? PyList_GetItem(left, 0) : NULL;
    status = on_host && node && may_be_joined(node) ? join(node) : run_known(&a, left, plans, parts);
  }
  forget(a.views, &a.viewed);
  free(a.views);
  free(a.starts);
  end_walk(&a.w);
  Py_DecRef(left);
  return status;
}

/* Evaluate groups of nodes one after the other. Each is let go of then. */
static int take_in_turn(object *groups, object *plans, int on_host, size *ran) {
  int status = VIEWS;
  while (PyList_Size(groups) && status > 0) {
    object *nodes = PyList_GetItem(groups, 0);
    Py_IncRef(nodes);
    status = PyList_SetSlice(groups, 0, 1, NULL) ? -1 : try_at_once(nodes, plans, on_host, NULL);
    *ran += status == RAN;
    Py_DecRef(nodes);
  }
  return status;
}

/* known(nodes, plans, lock, on_host): evaluate nodes of a device, as far as plans among these fit. `lock`: the device's.
 * Gives how many plans have run and one more, or, where something is left to Python, how many as a negative number. */
static object *known(object *self, object *const *args, size count) {
  object *locked = PyIter_Next(args[2]), *parts = NULL;
  const int on_host = args[3] == py.true;
  size ran = 0;
  int status = locked ? try_at_once(args[0], args[1], on_host, &parts) : -1;
  if (status == LEFT_TO_PYTHON && parts && PyList_Size(parts)) {
    status = take_in_turn(parts, args[1], on_host, &ran);
    if (status > 0) status = try_at_once(args[0], args[1], on_host, NULL);
  }
  ran += status == RAN;
  Py_DecRef(parts);
  Py_DecRef(locked);
  return status < 0 ? NULL : PyLong_FromLongLong(status ? ran + 1 : -ran);
}

static method known_method = {"known", known, FASTCALL, NULL};

/* The function above, for Python. `things`: in their order at the top of known.c; `runner`: what runs a table. */
object *PF_KEY_known(object *things, void *runner, double seconds) {
  object **to = (object **)&given;
  for (size_t i = 0; i < sizeof given / sizeof *to; i++) to[i] = PyTuple_GetItem(things, (size)i);
  Py_IncRef(things);
  run = (int (*)(void *, int64_t, double))(uintptr_t)runner;
  pause = seconds;
  return PyCFunction_NewEx(&known_method, NULL, NULL);
}
