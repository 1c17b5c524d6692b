/* A range of the text in which calls are written. */
#ifndef ENGINE_TEXT_CALL_SLICE_H
#define ENGINE_TEXT_CALL_SLICE_H

#include <stddef.h>

struct call_slice {
    size_t at, len; /* bytes */
};

#endif
