/* /kv: changes the types of the KV cache from here on; the loss of lossy ones is measured after the
 * next answer (app/chat/conversation_shadow.c). The UI thread parses the command, the engine's
 * applies it between two answers. */
#include "app/chat/commands/internal.h"

#include "app/chat/internal.h"
#include "engine/run/engine.h"

#include <string.h>

struct wish {
    enum { TELL, TYPES, UNDO } what;
    enum kv_type k, v;
};

static int do_kv(void *ctx, struct engine *g, char **text, struct error *e)
{
    struct wish *w = ctx;
    struct strbuf b = {0};
    char words[80];
    int rc;

    if (w->what == UNDO)
        engine_kv_types_opened(g, &w->k, &w->v);
    if (w->what != TELL && (rc = engine_kv_types_set(g, w->k, w->v, e)) < 0)
        return rc;
    shadow_kv_words(g, words, sizeof words);
    strbuf_puts(&b, words);
    if (w->what == UNDO)
        strbuf_puts(&b, " again");
    else if (w->what == TYPES)
        strbuf_puts(&b, engine_lossy(g)
                            ? " from here on, the chat is read anew: another text; the next answer "
                              "is measured against the exact run; /kv undo takes it back"
                            : " from here on, the chat is read anew");
    strbuf_putc(&b, '\n');
    *text = strbuf_take(&b, NULL);
    return *text ? 0 : error_set(e, ERR_MEMORY, "out of memory");
}

static bool read_type(const char *word, enum kv_type *out)
{
    size_t i = 0, n = sizeof kv_words / sizeof *kv_words;

    while (i < n && strcmp(word, kv_words[i]) != 0)
        i++;
    *out = (enum kv_type)i;
    return i < n;
}

/* "", "TYPE", "KEYS VALUES", "undo"; false: none of these. */
static bool read(const char *arguments, struct wish *w)
{
    char word[16];

    *w = (struct wish){.what = TELL};
    if (!*arguments)
        return true;
    chat_word_take(&arguments, word, sizeof word);
    if (strcmp(word, "undo") == 0) {
        w->what = UNDO;
        return !*arguments;
    }
    w->what = TYPES;
    if (!read_type(word, &w->k))
        return false;
    w->v = w->k;
    if (!*arguments)
        return true;
    chat_word_take(&arguments, word, sizeof word);
    return read_type(word, &w->v) && !*arguments;
}

int chat_kv(struct conversation *c, const char *arguments)
{
    struct wish wanted;

    if (!read(arguments, &wanted)) {
        conversation_say(c, SAY_NOTICE,
                         "/kv TYPE: keys and values in f32, f16 or q8_0; /kv KEYS VALUES: each in "
                         "its own; undo: as at the start");
        return -1;
    }
    return conversation_shadow_call(c, do_kv, &wanted, sizeof wanted, wanted.what != TELL);
}
