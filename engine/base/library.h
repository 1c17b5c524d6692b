/* Shared libraries that few runs need, opened at their first use: linked, they and what they need
 * (40 files) were four fifths of every start. Any thread; what is open stays open.
 *
 * One table of functions a library: its user writes
 *     #define FUNCTIONS(X) X(curl_easy_init) X(curl_easy_cleanup)
 *     struct functions { FUNCTIONS(LIBRARY_POINTER) } web;
 * and calls web.curl_easy_init() after library_open has returned 0. */
#ifndef ENGINE_BASE_LIBRARY_H
#define ENGINE_BASE_LIBRARY_H

#include "engine/base/error.h"

#include <pthread.h>
#include <stddef.h>

/* A member of the struct of functions; a name in the list of names, in the same order. */
#define LIBRARY_POINTER(name) __typeof__(name) *name;
#define LIBRARY_NAME(name) #name,

struct library {
    const char *file;         /* "libcurl.so.4", as the linker would write it down */
    const char *const *names; /* of n functions */
    void *functions;          /* the struct: n pointers to functions */
    size_t n;
    pthread_mutex_t lock; /* PTHREAD_MUTEX_INITIALIZER */
    int state;            /* 0 at first */
    struct error why;
};

/* 0: the functions may be called. ERR_DEVICE: the library, or one of its functions, is not there;
 * then every later call says so too. */
int library_open(struct library *l, struct error *e);

#endif
