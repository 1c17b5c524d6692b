/* Names of tools as models are given them: APIs and templates allow letters, digits, "_" and "-",
 * at most 64. Any thread. */
#ifndef APP_MCP_NAMES_H
#define APP_MCP_NAMES_H

#include <stdbool.h>
#include <stddef.h>

#define NAMES_MOST 65

/* A tool to be named; name is the result. Tools of one server are neighbours. */
struct named {
    const char *server, *own;
    char name[NAMES_MOST];
    bool shared; /* its own name does not suffice */
};

/* Names all of them: their own names with other letters replaced by "_"; SERVER__TOOL where two
 * would be the same, or where a tool's name begins like that of another server's tools would; a
 * number at the end where that is not enough. */
void names_give(struct named *list, size_t n);

#endif
