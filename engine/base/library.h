/* Libraries that the program can do without: found by name when they are first needed, kept until
 * the process ends. Any thread; who calls takes care that it happens once (pthread_once). A user
 * lists the functions it calls once, as F(name), and makes of that list a struct of pointers and
 * the names:
 *
 *     #define LIST(F) F(clFinish) F(clFlush)
 *     struct { LIST(LIBRARY_MEMBER) } table;
 *     library_load("libOpenCL.so.1", "ocl-icd", (const char *const[]){LIST(LIBRARY_NAME) NULL},
 *                  &table, sizeof table, &e);
 *
 * so that a type comes from the library's own header and a name stands in one place. */
#ifndef ENGINE_BASE_LIBRARY_H
#define ENGINE_BASE_LIBRARY_H

#include "engine/base/error.h"

#include <stddef.h>

#define LIBRARY_MEMBER(name) __typeof__(name) *name;
#define LIBRARY_NAME(name) #name,
/* For a table whose library is linked into the portable program (MOETOP_STATIC). */
#define LIBRARY_ADDRESS(name) name,

/* Fills a table (`bytes` long, function pointers and nothing else) with the addresses of `names`
 * (NULL behind the last) in the library `file`, or in one that it needs, or in one that the user
 * preloaded in its place. packages: what brings it, for the message. 0; ERR_IO: it is missing or
 * too old, the line says which; the table is zeros then. The portable program (MOETOP_STATIC) loads
 * no library and says so. */
int library_load(const char *file, const char *packages, const char *const *names, void *table,
                 size_t bytes, struct error *e);

#endif
