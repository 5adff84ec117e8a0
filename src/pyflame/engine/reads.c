/* Views that were read before, made again: x[i], x[a:b] (tensor/basic_index.py) and x.transpose(0, 1), x.view(2, -1)
 * (tensor/known_views.py), which know what such a call makes by the tensor's meta and whole numbers alone.
 */
static struct {
  const maker *link, *part, *tensor;
  object *indices, *views; /* dicts: what is known of indices, and of ops */
  object *movements;       /* dict: ops whose gradient rules need no values */
  object *copying;         /* dict: ops that cannot always be views of a view */
  object *serials, *cpu, *slice, *rest, *size;
  object *grad_enabled, *start, *stop, *step, *pop, *itemsize; /* names */
  int64_t most_pending;
} reads;
enum { MADE, PATH, BEGIN, PLACES };                               /* of what is known of an index; of a view the first two */
enum { L_PARENT, L_PATH, L_ATTACHED, L_OVERLAPS, L_VIEWS, L_LAYOUT }; /* slots of a link */
enum { M_OP, M_ATTRS, M_META, M_SIG };

/* Modes in which every op is seen, or a tensor that cannot be read: Python's. */
static int may_read(object *cell, object *here) {
  object *type = PyObject_Type(cell);
  const int is = is_of_tensors(type);
  Py_DecRef(type);
  object *node = is ? slot(cell, reads.tensor->offset[0]) : NULL;
  if (!node || !is_a(node, known_calls.node->type)) return 0;
  if (PyDict_GetItem(here, known_calls.tracer) != py.none || PyDict_GetItem(here, known_calls.recorder) != py.none) return 0;
  if (PyDict_GetItem(here, known_calls.eager) != py.false) return 0;
  if (PyLong_AsLongLong(PyDict_GetItem(here, known_calls.pending)) > reads.most_pending) return 0;
  object *entry = slot(cell, reads.tensor->offset[1]);
  return entry == py.none || PyDict_GetItem(here, reads.grad_enabled) != py.false;
}

/* A view of a tensor, and the tensor's note of it. */
static object *linked(object *cell, object *node, object *entry, object *path) {
  const int64_t at = reads.tensor->offset[2], *of = reads.link->offset;
  object *above = slot(cell, at);
  if (above == py.none) {
    object *views = PyDict_New(), *values[] = {py.none, py.empty, py.true, py.false, views, py.none};
    above = views ? make(reads.link, values, 6) : NULL;
    Py_DecRef(views);
    if (!above) return NULL;
    put(cell, at, above);
    Py_DecRef(py.none);
  }
  object *own = PyDict_New(), *values[] = {cell, path, py.true, py.false, own, py.none};
  object *link = own ? make(reads.link, values, 6) : NULL, *parts[] = {node, entry, link};
  object *view = link ? make(reads.tensor, parts, 3) : NULL;
  Py_DecRef(own);
  Py_DecRef(link);
  object *views = slot(slot(cell, at), of[L_VIEWS]), *pop = view ? PyObject_GetAttr(views, reads.pop) : NULL;
  object *noted = pop ? PyWeakref_NewRef(view, pop) : NULL;
  const int failed = !noted || PyDict_SetItem(views, noted, py.none);
  Py_DecRef(pop);
  Py_DecRef(noted);
  return failed ? (Py_DecRef(view), NULL) : view;
}

/* What the tape keeps of a move. */
static object *entry_of_move(object *made, object *source, object *parent) {
  object *parents = PyTuple_New(1), *metas = PyTuple_New(1), *kept = PyTuple_New(1), *out = NULL;
  if (parents && metas && kept) {
    object *meta = slot(source, known_calls.node->offset[N_META]);
    Py_IncRef(parent), PyTuple_SetItem(parents, 0, parent);
    Py_IncRef(meta), PyTuple_SetItem(metas, 0, meta);
    Py_IncRef(py.none), PyTuple_SetItem(kept, 0, py.none);
    object *op = PyTuple_GetItem(made, M_OP), *attrs = PyTuple_GetItem(made, M_ATTRS);
    object *values[] = {op, attrs, parents, metas, PyTuple_GetItem(made, M_META), kept, py.none, py.false};
    out = make(entries, values, 8);
  }
  Py_DecRef(parents);
  Py_DecRef(metas);
  Py_DecRef(kept);
  return out;
}

/* The Node of some moves of a Node, and its place on the tape where that has one (`*entry`). Both are held. */
static object *moved(object *node, object *moves, object **entry) {
  const size count = PyObject_Size(moves);
  Py_IncRef(node);
  Py_IncRef(*entry);
  for (size i = 0; node && i < count; i++) {
    object *made = PySequence_GetItem(moves, i), *srcs = PyTuple_New(1), *next = NULL, *tape = py.none;
    if (made && srcs) {
      Py_IncRef(node), PyTuple_SetItem(srcs, 0, node);
      object *attrs = PyTuple_GetItem(made, M_ATTRS);
      object *values[] = {PyTuple_GetItem(made, M_OP), srcs, attrs, PyTuple_GetItem(made, M_META),
                          PyTuple_GetItem(made, M_SIG)};
      next = make(known_calls.node, values, 5);
      if (next && *entry != py.none) tape = entry_of_move(made, node, *entry);
      else Py_IncRef(tape);
      if (!tape) Py_DecRef(next), next = NULL;
    } else tape = NULL;
    Py_DecRef(made);
    Py_DecRef(srcs);
    Py_DecRef(node);
    Py_DecRef(*entry);
    node = next;
    *entry = tape;
  }
  if (!node) Py_DecRef(*entry), *entry = NULL;
  return node;
}

/* Whether C may make these moves of a tensor: there are some, all of them known to the tape where it has a place there,
 * and none that PyTorch may have to copy for. */
static int may_move(object *cell, object *moves) {
  object *above = slot(cell, reads.tensor->offset[2]);
  const int of_view = above != py.none && slot(above, reads.link->offset[L_PARENT]) != py.none;
  const int taped = slot(cell, reads.tensor->offset[1]) != py.none;
  const size count = PyObject_Size(moves);
  for (size i = 0; i < count; i++) {
    object *made = PySequence_GetItem(moves, i), *op = PyTuple_GetItem(made, M_OP);
    const int wrong = (taped && !PyDict_GetItem(reads.movements, op)) || (of_view && PyDict_GetItem(reads.copying, op));
    Py_DecRef(made);
    if (wrong) return 0;
  }
  return count > 0;
}

/* A view by moves: of a tensor and the Node that it holds, with what is known of it. */
static object *view_by_moves(object *cell, object *source, object *known) {
  object *entry = slot(cell, reads.tensor->offset[1]);
  object *node = moved(source, PyTuple_GetItem(known, MADE), &entry);
  object *out = node ? linked(cell, node, entry, PyTuple_GetItem(known, PATH)) : NULL;
  Py_DecRef(node);
  Py_DecRef(entry);
  return out;
}

/* --- x[i] ---------------------------------------------------------------------------------------------------------- */

static int is_end(object *end) { return end == py.none || is_a(end, known_calls.whole); }

/* One item of an index as basic_index.plain_key has it, held; NULL where it is no plain one. */
static object *plain_item(object *item) {
  if (item == py.none || item == reads.rest || is_a(item, known_calls.whole)) return Py_IncRef(item), item;
  if (!is_a(item, reads.slice)) return NULL;
  object *ends[] = {PyObject_GetAttr(item, reads.start), PyObject_GetAttr(item, reads.stop),
                    PyObject_GetAttr(item, reads.step)};
  const int plain = ends[0] && ends[1] && ends[2] && is_end(ends[0]) && is_end(ends[1]) && is_end(ends[2]);
  object *out = plain ? PyTuple_New(3) : NULL;
  for (size i = 0; i < 3; i++) {
    if (out) PyTuple_SetItem(out, i, ends[i]);
    else Py_DecRef(ends[i]);
  }
  return out;
}

static object *plain_index(object *index) {
  const int several = is_a(index, known_calls.tuple);
  const size count = several ? PyTuple_Size(index) : 1;
  object *out = PyTuple_New(count);
  for (size i = 0; out && i < count; i++) {
    object *item = plain_item(several ? PyTuple_GetItem(index, i) : index);
    if (!item) return Py_DecRef(out), NULL;
    PyTuple_SetItem(out, i, item);
  }
  return out;
}

/* Where a region begins in memory with these strides, in elements. */
static int64_t begin_of(object *region, object *strides) {
  int64_t out = 0;
  for (size i = 0; i < PyTuple_Size(region); i++)
    out += PyLong_AsLongLong(PyTuple_GetItem(PyTuple_GetItem(region, i), 0)) * PyLong_AsLongLong(PyTuple_GetItem(strides, i));
  return out;
}

/* A leaf over a part of what a Node holds, held; NULL where it is not in the host's memory, or nothing is known of that. */
static object *part_of(object *node, object *known) {
  object *value = slot(node, offset.data), *meta = slot(node, known_calls.node->offset[N_META]);
  if (slot(node, offset.op) != py.leaf || slot(meta, offset.place) != reads.cpu || !in_memory(value)) return NULL;
  object *strides = slot(value, offset.strides), *place = PyDict_GetItem(PyTuple_GetItem(known, PLACES), strides);
  if (!place || place == py.none) return NULL;
  object *moves = PyTuple_GetItem(known, MADE), *first = PyList_GetItem(moves, 0);
  object *last = PyList_GetItem(moves, PyList_Size(moves) - 1);
  int64_t begin = PyLong_AsLongLong(PyTuple_GetItem(known, BEGIN));
  if (strides != py.none && PyTuple_GetItem(first, M_OP) == py.slice)
    begin = begin_of(PyTuple_GetItem(PyTuple_GetItem(first, M_ATTRS), 0), strides);
  object *width = PyObject_GetAttr(slot(meta, offset.dtype), reads.itemsize);
  if (!width) return NULL;
  begin = begin * PyLong_AsLongLong(width) + PyLong_AsLongLong(slot(value, offset.start));
  object *at = PyLong_FromLongLong(begin), *serial = at ? PyIter_Next(reads.serials) : NULL;
  object *values[] = {slot(value, offset.storage), at, PyTuple_GetItem(place, 0), node, moves, serial};
  object *part = serial ? make(reads.part, values, 6) : NULL;
  object *leaf[] = {py.leaf, py.empty, py.empty, PyTuple_GetItem(last, M_META), PyTuple_GetItem(place, 1), part};
  object *out = part ? make(known_calls.node, leaf, 6) : NULL;
  Py_DecRef(width);
  Py_DecRef(at);
  Py_DecRef(serial);
  Py_DecRef(part);
  return out;
}

static object *view_by_index(object *cell, object *source, object *known) {
  if (slot(cell, reads.tensor->offset[1]) == py.none) {
    object *node = part_of(source, known);
    object *out = node ? linked(cell, node, py.none, PyTuple_GetItem(known, PATH)) : NULL;
    Py_DecRef(node);
    if (out || PyErr_Occurred()) return out;
    object *value = slot(source, offset.data);
    if (in_memory(value) && !PyDict_GetItem(PyTuple_GetItem(known, PLACES), slot(value, offset.strides))) return NULL;
  }
  return view_by_moves(cell, source, known);
}

/* What is known under a key, held; NULL: nothing. The key is let go of. */
static object *found_under(object *table, object *key) {
  object *found = key ? PyDict_GetItem(table, key) : NULL;
  Py_IncRef(found); /* another thread may forget it */
  Py_DecRef(key);
  return found;
}

static object *key_of_three(object *a, object *b, object *c) {
  object *key = PyTuple_New(3), *parts[] = {a, b, c};
  for (size i = 0; key && i < 3; i++) Py_IncRef(parts[i]), PyTuple_SetItem(key, i, parts[i]);
  return key;
}

static object *none_unless(object *out) {
  if (out || PyErr_Occurred()) return out;
  return Py_IncRef(py.none), py.none;
}

/* read_index(tensor, index, state): a view by an index that was read before, or None. */
static object *read_index(object *self, object *const *of, size count) {
  object *cell = of[0], *here = of[2], *out = NULL, *plain = may_read(cell, here) ? plain_index(of[1]) : NULL;
  if (plain) {
    object *node = slot(cell, reads.tensor->offset[0]), *meta = slot(node, known_calls.node->offset[N_META]);
    Py_IncRef(node); /* another thread may rebind the tensor */
    object *known = found_under(reads.indices, key_of_three(meta, PyDict_GetItem(here, known_calls.device), plain));
    if (known && may_move(cell, PyTuple_GetItem(known, MADE))) {
      out = view_by_index(cell, node, known);
      if (out && count_pending(here, PyList_Size(PyTuple_GetItem(known, MADE)))) Py_DecRef(out), out = NULL;
    }
    Py_DecRef(known);
    Py_DecRef(plain);
    Py_DecRef(node);
  }
  return none_unless(out);
}

/* --- x.transpose(0, 1) --------------------------------------------------------------------------------------------- */

/* Whether an argument is a whole number, None or a tuple of those. */
static int is_whole(object *value) {
  if (is_end(value)) return 1;
  if (!is_a(value, known_calls.tuple) && !is_a(value, reads.size)) return 0;
  for (size i = 0; i < PyTuple_Size(value); i++)
    if (!is_whole(PyTuple_GetItem(value, i))) return 0;
  return 1;
}

/* The key of known_views.view; NULL where it has none. */
static object *view_key(object *fn, object *meta, object *device, object *args, object *kwargs) {
  const size given = PyTuple_Size(args) - 1, named = PyObject_Size(kwargs);
  object *rest = PyTuple_New(given), *key = PyTuple_New(4 + named), *heads[] = {fn, meta, device};
  int plain = rest && key;
  for (size i = 0; plain && i < given; i++) {
    object *value = PyTuple_GetItem(args, i + 1);
    plain = is_whole(value);
    Py_IncRef(value), PyTuple_SetItem(rest, i, value);
  }
  for (size i = 0; plain && i < 3; i++) Py_IncRef(heads[i]), PyTuple_SetItem(key, i, heads[i]);
  if (plain) Py_IncRef(rest), PyTuple_SetItem(key, 3, rest);
  object *name, *value;
  for (size at = 0, i = 4; plain && PyDict_Next(kwargs, &at, &name, &value); i++) {
    object *item = is_whole(value) ? PyTuple_New(2) : NULL;
    plain = item != NULL;
    if (!plain) break;
    Py_IncRef(name), PyTuple_SetItem(item, 0, name);
    Py_IncRef(value), PyTuple_SetItem(item, 1, value);
    PyTuple_SetItem(key, i, item);
  }
  Py_DecRef(rest);
  return plain ? key : (Py_DecRef(key), NULL);
}

static object *views_of(object *cell, object *source, object *known, object *here) {
  object *kind = PyTuple_GetItem(known, 0), *parts = PyTuple_GetItem(known, 1), *all = PyList_New(0);
  const size count = PyList_Size(parts);
  size moves = 0;
  int failed = !all;
  for (size i = 0; i < count && !failed; i++) {
    object *one = view_by_moves(cell, source, PyList_GetItem(parts, i));
    failed = !one || PyList_Append(all, one);
    moves += PyObject_Size(PyTuple_GetItem(PyList_GetItem(parts, i), MADE));
    Py_DecRef(one);
  }
  failed = failed || count_pending(here, moves);
  object *out = NULL;
  if (!failed && kind != py.none) out = PyObject_CallFunctionObjArgs(kind, all, NULL);
  if (!failed && kind == py.none) Py_IncRef(out = PyList_GetItem(all, 0));
  Py_DecRef(all);
  return out;
}

/* read_view(fn, args, kwargs, state): what a view op gives for a tensor and whole numbers, or None. */
static object *read_view(object *self, object *const *of, size count) {
  object *here = of[3], *cell = PyTuple_Size(of[1]) ? PyTuple_GetItem(of[1], 0) : NULL, *out = NULL;
  object *device = PyDict_GetItem(here, known_calls.device);
  if (cell && device && device != py.none && may_read(cell, here)) {
    object *node = slot(cell, reads.tensor->offset[0]), *meta = slot(node, known_calls.node->offset[N_META]);
    Py_IncRef(node); /* another thread may rebind the tensor */
    object *known = found_under(reads.views, view_key(of[0], meta, device, of[1], of[2]));
    int may = known != NULL;
    for (size i = 0; may && i < PyList_Size(PyTuple_GetItem(known, 1)); i++)
      may = may_move(cell, PyTuple_GetItem(PyList_GetItem(PyTuple_GetItem(known, 1), i), MADE));
    if (may) out = views_of(cell, node, known, here);
    Py_DecRef(known);
    Py_DecRef(node);
  }
  return none_unless(out);
}

/* --- x.item() ------------------------------------------------------------------------------------------------------ */

static struct {
  object *lock, *free, *types[5]; /* the device's, one that nobody takes; float32, float64, int64, int32, bool */
} numbers;

/* Whether a plan may be writing, as Lock.taken says it. */
static int device_is_taken(void) {
  return references(slot(numbers.lock, offset.shared)) != references(slot(numbers.free, offset.shared));
}

static object *number_in(const char *at, object *dtype) {
  union {
    float real;
    double wide;
    int32_t whole;
    int64_t long_one;
  } number = {.long_one = 0};
  if (dtype == numbers.types[4]) return *at ? (Py_IncRef(py.true), py.true) : (Py_IncRef(py.false), py.false);
  const int narrow = dtype == numbers.types[0] || dtype == numbers.types[3];
  if (!narrow && dtype != numbers.types[1] && dtype != numbers.types[2]) return Py_IncRef(py.none), py.none;
  memcpy(&number, at, narrow ? 4 : 8);
  if (dtype == numbers.types[0]) return PyFloat_FromDouble(number.real);
  if (dtype == numbers.types[1]) return PyFloat_FromDouble(number.wide);
  return PyLong_FromLongLong(narrow ? number.whole : number.long_one);
}

/* read_number(node): the number that a leaf with one element is, in memory that no plan writes to; None for any other. */
static object *read_number(object *self, object *const *of, size count) {
  if (!reads.cpu) return Py_IncRef(py.none), py.none; /* nobody has imported tensors */
  object *value = slot(of[0], offset.data), *meta = slot(of[0], known_calls.node->offset[N_META]);
  if (slot(of[0], offset.op) == py.leaf && slot(meta, offset.place) == reads.cpu && in_memory(value) &&
      is_a(slot(value, offset.storage), py.block) && !device_is_taken()) {
    const int64_t begin = PyLong_AsLongLong(slot(slot(value, offset.storage), offset.address));
    return number_in((const char *)(intptr_t)begin + PyLong_AsLongLong(slot(value, offset.start)), slot(meta, offset.dtype));
  }
  return Py_IncRef(py.none), py.none;
}

static method number_method = {"read_number", read_number, FASTCALL, NULL};

/* What engine/host.py calls. */
object *PF_KEY_number(object *things) {
  object **to = &numbers.lock;
  for (size i = 0; i < PyTuple_Size(things); i++) to[i] = PyTuple_GetItem(things, i);
  Py_IncRef(things);
  return PyCFunction_NewEx(&number_method, NULL, NULL);
}

static object *thread_state, *its_dict; /* the second is a name */

/* read_item(tensor): the number that it is where `read_number` gives one; None where Python is to find it, to ask a class
 * or to say what is wrong. */
static object *read_item(object *self, object *const *of, size count) {
  object *type = PyObject_Type(of[0]), *here = PyObject_GetAttr(thread_state, its_dict);
  const int is = is_of_tensors(type);
  Py_DecRef(type); /* the value holds it */
  if (!here) return NULL;
  object *node = is ? slot(of[0], ops.tensor->offset[0]) : NULL;
  const int seen = PyDict_GetItem(here, known_calls.tracer) != py.none || PyDict_GetItem(here, known_calls.eager) != py.false;
  Py_DecRef(here);
  if (seen || !numbers.lock || !node || !is_a(node, known_calls.node->type)) return Py_IncRef(py.none), py.none;
  if (PyLong_AsLongLong(slot(slot(node, known_calls.node->offset[N_META]), offset.elements)) != 1)
    return Py_IncRef(py.none), py.none;
  Py_IncRef(node); /* another thread may rebind the tensor */
  object *out = read_number(NULL, &node, 1);
  Py_DecRef(node);
  return out;
}

static method item_method = {"read_item", read_item, FASTCALL, NULL};

/* What tensor/tensor.py gives. */
object *PF_KEY_item(object *things) {
  thread_state = PyTuple_GetItem(things, 0);
  its_dict = PyTuple_GetItem(things, 1);
  Py_IncRef(things);
  return PyCFunction_NewEx(&item_method, NULL, NULL);
}

static method index_method = {"read_index", read_index, FASTCALL, NULL};
static method view_method = {"read_view", read_view, FASTCALL, NULL};

/* What tensor/known_views.py gives. */
object *PF_KEY_reads(object *things) {
  reads.link = PyLong_AsVoidPtr(PyTuple_GetItem(things, 0));
  reads.part = PyLong_AsVoidPtr(PyTuple_GetItem(things, 1));
  reads.tensor = PyLong_AsVoidPtr(PyTuple_GetItem(things, 2));
  object **to = &reads.indices;
  const size last = PyTuple_Size(things) - 1;
  for (size i = 3; i < last; i++) to[i - 3] = PyTuple_GetItem(things, i);
  reads.most_pending = PyLong_AsLongLong(PyTuple_GetItem(things, last));
  Py_IncRef(things);
  return pair(&index_method, &view_method);
}
