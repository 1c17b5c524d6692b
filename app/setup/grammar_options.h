/* The grammar of the options that constrains answers. Any thread that owns the options. */
#ifndef APP_SETUP_GRAMMAR_OPTIONS_H
#define APP_SETUP_GRAMMAR_OPTIONS_H

#include "app/options/options.h"
#include "engine/text/grammar/grammar.h"

/* A reference, the caller's; NULL: none given. ERR_USAGE if it is wrong, ERR_IO, ERR_MEMORY. */
int grammar_from_options(const struct options *o, struct grammar **out, struct error *e);

#endif
