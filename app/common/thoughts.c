/* See thoughts.h. */
#include "app/common/thoughts.h"

#include "app/common/safe_text.h"

#include <stdio.h>
#include <unistd.h>

#define DIM "\033[2m"
#define NORMAL "\033[0m"

void thoughts_put(struct thoughts *t, const char *text, size_t n)
{
    bool tty = isatty(STDERR_FILENO);

    if (!n)
        return;
    if (!t->open && tty)
        fputs(DIM, stderr);
    t->open = true;
    t->line_open = text[n - 1] != '\n';
    safe_text_put(stderr, tty, &t->marks, text, n);
    fflush(stderr);
}

void thoughts_end(struct thoughts *t)
{
    if (!t->open)
        return;
    if (isatty(STDERR_FILENO))
        fputs(NORMAL, stderr);
    fputs(t->line_open ? "\n\n" : "\n", stderr);
    fflush(stderr);
    *t = (struct thoughts){0};
}
