/* What Python is too slow for, over Python's own objects: making objects with slots (core/maker.py), here; the walk over
 * a pending graph (walk.c); running one whose plan is known (known.c); an evaluation (evaluate.c); calling a jitted
 * function again (jitted_call.c); running a plan on memory of the caller's (direct.c); making the Nodes of a call whose
 * outcome is known (calls.c); and views (reads.c). The files are one text.
 *
 * Of Python it takes functions that every CPython has under these names (the stable ABI), declared here, so that no
 * headers of Python are needed. They are weak: where a process does not show them, `_ready` says so. Where objects hold
 * their attributes native.py has found out.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct object object;
typedef intptr_t size;
typedef struct {
  const char *name;
  object *(*call)(object *self, object *const *args, size count);
  int flags;
  const char *doc;
} method; /* PyMethodDef */
enum { FASTCALL = 0x80 };

/* All that is taken of Python. */
#define PYTHON_FUNCTIONS(is) \
  is(void, Py_IncRef, object *) \
  is(void, Py_DecRef, object *) \
  is(object *, PyCFunction_NewEx, method *, object *, object *) \
  is(object *, PyObject_Type, object *) \
  is(int, PyObject_RichCompareBool, object *, object *, int) \
  is(object *, PyObject_GetAttr, object *, object *) \
  is(int, PyObject_SetAttr, object *, object *, object *) \
  is(object *, PyObject_CallFunctionObjArgs, object *, ...) \
  is(object *, PyObject_CallMethodObjArgs, object *, object *, ...) \
  is(object *, PyLong_FromLongLong, long long) \
  is(long long, PyLong_AsLongLong, object *) \
  is(double, PyFloat_AsDouble, object *) \
  is(object *, PyBytes_FromStringAndSize, const char *, size) \
  is(char *, PyBytes_AsString, object *) \
  is(size, PyTuple_Size, object *) \
  is(object *, PyTuple_GetItem, object *, size) \
  is(object *, PyTuple_New, size) \
  is(int, PyTuple_SetItem, object *, size, object *) \
  is(object *, PyList_New, size) \
  is(size, PyList_Size, object *) \
  is(object *, PyList_GetItem, object *, size) \
  is(int, PyList_Append, object *, object *) \
  is(int, PyList_SetSlice, object *, size, size, object *) \
  is(object *, PyDict_GetItem, object *, object *) \
  is(int, PyDict_SetItem, object *, object *, object *) \
  is(int, PyDict_DelItem, object *, object *) \
  is(object *, PyDict_New, void) \
  is(int, PyDict_Next, object *, size *, object **, object **) \
  is(int, PySet_Contains, object *, object *) \
  is(size, PyObject_Size, object *) \
  is(object *, PySequence_GetItem, object *, size) \
  is(object *, PyIter_Next, object *) \
  is(object *, PyWeakref_NewRef, object *, object *) \
  is(void *, PyType_GetSlot, object *, int) \
  is(int, PyType_IsSubtype, object *, object *) \
  is(object *, PyFloat_FromDouble, double) \
  is(object *, PyLong_FromVoidPtr, void *) \
  is(void *, PyLong_AsVoidPtr, object *) \
  is(void *, PyEval_SaveThread, void) \
  is(void, PyEval_RestoreThread, void *) \
  is(object *, PyErr_Occurred, void) \
  is(object *, PyErr_NoMemory, void) \
  is(int, PyErr_CheckSignals, void) \
  is(void, PyErr_Clear, void) \
  is(void, PyErr_BadInternalCall, void)
#define DECLARED(result, name, ...) extern __attribute__((weak)) result name(__VA_ARGS__);
#define NAMED(result, name, ...) (void *)name,
PYTHON_FUNCTIONS(DECLARED)

/* Whether they are to be had. */
int PF_KEY_ready(void) {
  void *const needed[] = {PYTHON_FUNCTIONS(NAMED)};
  for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
    if (!needed[i]) return 0;
  return 1;
}

/* Given once, and kept: ops, kinds of ops, types and other constants. native.py has them in this order. */
static struct {
  object *slice, *reshape, *leaf, *number, *cat, *uninitialized;
  object *a_leaf, *a_number, *an_iota, *a_movement, *a_copy, *a_collective, *an_assignment;
  object *value, *part, *block;
  object *none, *false, *true, *empty;
} py;
/* Where objects hold their slots: bytes from their begin. */
static struct {
  int64_t srcs, op, sig, serial, data, attrs, line, meta; /* of a Node */
  int64_t plain, kind, alias;                       /* of an OpDef */
  int64_t storage, start, strides;                  /* of a Value */
  int64_t address, memory, nbytes;                  /* of a Block */
  int64_t elements, place, dtype, shape;            /* of a Meta */
  int64_t shared;                                   /* of a Lock */
} offset;

void PF_KEY_given(object *constants, const int64_t *offsets) {
  object **known = (object **)&py;
  for (size_t i = 0; i < sizeof py / sizeof *known; i++) known[i] = PyTuple_GetItem(constants, (size)i);
  Py_IncRef(constants);
  memcpy(&offset, offsets, sizeof offset);
}

static object *slot(object *of, int64_t where) { return *(object **)((char *)of + where); }

static void put(object *of, int64_t where, object *value) { *(object **)((char *)of + where) = value; }

static int is_a(object *thing, object *type) {
  object *found = PyObject_Type(thing);
  Py_DecRef(found);
  return found == type;
}

static object *item(object *tuple, size at) { return PyTuple_GetItem(tuple, at); }

static const int64_t *words(object *bytes) { return (const int64_t *)PyBytes_AsString(bytes); }

static size count_of_words(object *bytes) { return PyObject_Size(bytes) / (size)sizeof(int64_t); }

/* Whether attributes have equal values: owners, names and values in turns. */
static int guards_fit(object *guards) {
  enum { EQUAL = 2 };
  int fit = 1;
  for (size i = 0; i < PyTuple_Size(guards) && fit > 0; i += 3) {
    object *now = PyObject_GetAttr(item(guards, i), item(guards, i + 1)), *wanted = item(guards, i + 2);
    if (!now) return -1;
    fit = now == wanted ? 1 : PyObject_RichCompareBool(now, wanted, EQUAL);
    Py_DecRef(now);
  }
  return fit;
}

static int is_tuple(object *thing) {
  object *type = PyObject_Type(py.empty);
  Py_DecRef(type);
  return is_a(thing, type);
}

typedef object *(*create)(object *type, object *args, object *named);

static create creator(object *type) { return (create)(uintptr_t)PyType_GetSlot(type, 65 /* Py_tp_new */); }

typedef struct {
  object *type, *counter; /* the counter may be NULL */
  create make;
  int64_t counted, count, offset[]; /* of the counter's slot; how many others, and theirs */
} maker;

static object *make(const maker *m, object *const *values, size count) {
  object *out = m->make(m->type, py.empty, NULL);
  if (!out) return NULL;
  for (size i = 0; i < m->count; i++) {
    object *value = i < count ? values[i] : py.none;
    Py_IncRef(value);
    put(out, m->offset[i], value);
  }
  if (m->counter) put(out, m->counted, PyIter_Next(m->counter));
  return out;
}

static object *made(object *self, object *const *values, size count) {
  const maker *m = PyLong_AsVoidPtr(self);
  return count > m->count ? PyErr_BadInternalCall(), NULL : make(m, values, count);
}

static method made_method = {"new", made, FASTCALL, NULL};

/* A function that makes objects of a class, for as long as the process lives; `offsets`: of its slots. */
object *PF_KEY_maker(object *type, const int64_t *offsets, int64_t count, object *counter, int64_t counted) {
  maker *m = malloc(sizeof *m + (size_t)count * sizeof *offsets);
  if (!m) return PyErr_NoMemory();
  *m = (maker){type, counter == py.none ? NULL : counter, creator(type), counted, count};
  memcpy(m->offset, offsets, (size_t)count * sizeof *offsets);
  Py_IncRef(type);
  Py_IncRef(counter);
  object *self = PyLong_FromVoidPtr(m), *out = self ? PyCFunction_NewEx(&made_method, self, NULL) : NULL;
  Py_DecRef(self);
  return out;
}
