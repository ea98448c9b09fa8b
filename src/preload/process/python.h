/* python.h: the functions of Python's stable interface that sublet calls, if the program has a
 * Python.
 *
 * Objects are opaque. Each function has the preconditions in Python's documentation, above all the
 * interpreter's lock, which the caller takes. No lock of ours may be held during a call. */
#pragma once

#include <stdbool.h>

struct python_method { /* PyMethodDef */
        const char *name;
        void *(*call)(void *self, void *arguments);
        int flags;
        const char *documentation;
};
#define PYTHON_NO_ARGUMENTS 4 /* METH_NOARGS */

#define PYTHON(P)                                                              \
        P(int, Py_IsInitialized, (void))                                       \
        P(int, Py_AddPendingCall, (int (*)(void *), void *))                   \
        P(int, PyGILState_Ensure, (void))                                      \
        P(void, PyGILState_Release, (int))                                     \
        P(void *, PyEval_SaveThread, (void))                                   \
        P(void, PyEval_RestoreThread, (void *))                                \
        P(void *, PyErr_Occurred, (void))                                      \
        P(void, PyErr_Clear, (void))                                           \
        P(int, PyOS_InterruptOccurred, (void))                                 \
        P(void, PyErr_SetInterrupt, (void))                                    \
        P(void *, PyImport_GetModuleDict, (void))                              \
        P(void *, PyImport_ImportModule, (const char *))                       \
        P(void *, PyDict_GetItemString, (void *, const char *))                \
        P(void *, PyObject_GetAttrString, (void *, const char *))              \
        P(void *, PyObject_CallObject, (void *, void *))                       \
        P(void *, PyObject_CallFunctionObjArgs, (void *, ...))                 \
        P(void *, PyCFunction_NewEx, (struct python_method *, void *, void *)) \
        P(void *, PyLong_FromLong, (long))                                     \
        P(void, Py_IncRef, (void *))                                           \
        P(void, Py_DecRef, (void *))

#define P(result, name, parameters) result(*name) parameters;
extern struct python {
        bool there; /* all functions were found; if not, none is called */
        PYTHON(P)
} python;
#undef P

/* Find the functions. Called once, at the program's first call of the driver. */
void python_setup(void);
