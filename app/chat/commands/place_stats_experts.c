/* The slash commands about the engine: /place, /stats, /experts; and /quit. Those that measure are
 * in app/chat/commands/measure.c. */
#include "app/chat/commands/internal.h"

#include "app/chat/commands/measure.h"
#include "app/setup/resolve.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <stdlib.h>
#include <string.h>

int chat_place(struct conversation *c, const char *arguments)
{
    struct strbuf b = {0};
    char *text;

    if (!arguments[0] || strcmp(arguments, "help") == 0) {
        const struct telemetry *t = conversation_telemetry(c);

        text = place_help_text();
        if (t)
            strbuf_printf(&b, "now: %s\n\n", t->plan);
        strbuf_puts(&b, text ? text : "");
        mem_free(text);
        return chat_output(c, &b);
    }
    if (strncmp(arguments, "save", 4) == 0 && (!arguments[4] || arguments[4] == ' '))
        return chat_place_save(c, arguments + 4 + strspn(arguments + 4, " "));
    return conversation_place_told(c, arguments);
}

void chat_complete_place(struct conversation *c, const char *line, const char *word, char ***list,
                         size_t *n)
{
    chat_complete_values(&option_table[OPTION_ID_place], word, list, n);
}

int chat_stats(struct conversation *c, const char *arguments)
{
    const struct stats *stats = conversation_stats(c);
    struct strbuf b = {0};
    char *text = NULL;
    size_t len = 0;
    FILE *f;

    if (!stats) {
        conversation_say(c, SAY_NOTICE, "the model is still loading");
        return -1;
    }
    f = open_memstream(&text, &len);
    if (!f)
        return -1;
    stats_print(stats, f);
    fclose(f);
    strbuf_put(&b, text, len);
    free(text);
    return chat_output(c, &b);
}

/* L17/E9, also l17 e9 and 17 9. */
int chat_experts(struct conversation *c, const char *arguments)
{
    int layer = -1, expert = -1, end = 0;
    const char *s = chat_blank(arguments);

    s += *s == 'L' || *s == 'l';
    if (sscanf(s, "%d%n", &layer, &end) == 1) {
        s += end;
        s += strspn(s, " \t/,.");
        s += *s == 'E' || *s == 'e';
        end = 0;
        if (sscanf(s, "%d%n", &expert, &end) == 1 && !*chat_blank(s + end))
            return conversation_expert(c, layer, expert);
    }
    conversation_say(c, SAY_TROUBLE,
                     "/experts L17/E9: which of this chat's tokens chose expert 9 of layer 17 "
                     "(both counted from 0)");
    return -1;
}

int chat_quit(struct conversation *c, const char *arguments)
{
    conversation_quit(c);
    return 0;
}
