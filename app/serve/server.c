/* See server.h. */
#include "app/serve/server.h"

#include "app/serve/board.h"
#include "app/serve/refusal.h"
#include "engine/base/log.h"
#include "engine/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int server_ready(const struct server *s, struct refusal *r)
{
    if (atomic_load(&s->ready))
        return 0;
    return refuse(r, 503, "loading", NULL, "the model is being loaded: try again in a moment");
}

void server_say(const struct server *s, const char *format, ...)
{
    char text[500], safe[700];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    utf8_escape(safe, sizeof safe, text, strlen(text), 0);
    log_write(LOG_LEVEL_INFO, "%s", safe);
    if (s->board) {
        struct ui_request line = {0};

        snprintf(line.text, sizeof line.text, "%.*s", (int)sizeof line.text - 1, safe);
        board_request(s->board, &line);
    }
    if (atomic_load(&s->plain))
        fprintf(stderr, "moetop: %s\n", safe);
}
