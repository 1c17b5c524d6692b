/* The slash commands about the engine: /place, /stats, /cache, /log, /experts; and /quit. Commands
 * that measure are in app/chat/commands/measure.c. */
#include "app/chat/commands/internal.h"

#include "app/chat/cache_doctor.h"
#include "app/chat/commands/measure.h"
#include "app/setup/resolve.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/placement/planner.h"
#include "ui/draw.h"

#include <stdlib.h>
#include <string.h>

int chat_place(struct conversation *c, const char *arguments)
{
    struct strbuf b = {0};
    char *text;

    if (!arguments[0] || strcmp(arguments, "help") == 0) {
        const struct telemetry *t = conversation_telemetry(c);
        char names[TELEMETRY_PLAN_NAMES];

        text = place_help_text();
        if (t)
            strbuf_printf(&b, "now: %s\n\n", telemetry_plan_names(t, names, sizeof names));
        strbuf_puts(&b, text ? text : "");
        mem_free(text);
        return chat_output(c, &b);
    }
    if (strncmp(arguments, "save", 4) == 0 && (!arguments[4] || arguments[4] == ' '))
        return chat_place_save(c, arguments + 4 + strspn(arguments + 4, " "));
    if (strcmp(arguments, "prompt") == 0) {
        conversation_say(c, SAY_TROUBLE,
                         "/place prompt NAME: which placement reads prompts? same: the tokens'");
        return -1;
    }
    return conversation_place_told(c, arguments);
}

void chat_complete_place(struct conversation *c, const char *line, const char *word, char ***list,
                         size_t *n)
{
    const char *rest = line + strcspn(line, " ");

    rest += strspn(rest, " ");
    if (planner_phase(&rest) == PHASE_PROMPT) {
        chat_complete_values(&option_table[OPTION_ID_place_prompt], word, list, n);
        return;
    }
    chat_complete_values(&option_table[OPTION_ID_place], word, list, n);
    chat_completion_add(list, n, "prompt", word);
}

/* Data of this and other chats, or of prompts, on disk. */
static void print_stored(const struct telemetry *t, struct strbuf *b)
{
    char has[16], most[16];

    if (t && t->stored.most)
        strbuf_printf(b, "on the disk: %llu piece%s of state, %s of at most %s\n",
                      (unsigned long long)t->stored.files, t->stored.files == 1 ? "" : "s",
                      draw_size(has, (double)t->stored.bytes, false),
                      draw_size(most, (double)t->stored.most, false));
}

int chat_cache(struct conversation *c, const char *arguments)
{
    const struct cache_story *story = conversation_cache(c);
    struct strbuf b = {0};

    if (!story) {
        conversation_say(
            c, SAY_NOTICE,
            conversation_host(c)[0]
                ? "N/A: a server does not tell what its cache held; /stats has how much"
                : "nothing was answered yet");
        return -1;
    }
    cache_story_print(story, &b);
    print_stored(conversation_telemetry(c), &b);
    return chat_output(c, &b);
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

/* /log N: the newest N lines of the log, as "  12.3 s ago  ! text"; "!" marks warnings and errors.
 */
int chat_log(struct conversation *c, const char *arguments)
{
    uint64_t newest = log_newest(),
             wanted = arguments[0] ? strtoull(arguments, NULL, 10) : LOG_LINES, now = clock_now();
    struct strbuf b = {0};
    struct log_line *l = mem_alloc(1, sizeof *l);

    if (!wanted || (arguments[0] && arguments[strspn(arguments, "0123456789")])) {
        mem_free(l);
        conversation_say(c, SAY_TROUBLE, "/log N: how many of the newest notes?");
        return -1;
    }
    if (l)
        l->serial = newest > wanted ? newest - wanted : 0;
    while (l && l->serial < newest && log_next(l->serial, l))
        strbuf_printf(&b, "%7.1f s ago  %s%s\n", clock_seconds(now - l->time_ns),
                      l->level >= LOG_LEVEL_WARNING ? "! " : "", l->text);
    mem_free(l);
    if (!b.len)
        strbuf_puts(&b, "no notes yet");
    return chat_output(c, &b);
}

/* Experts are named L17/E9, also l17 e9 and 17 9. */
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
