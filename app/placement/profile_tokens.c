/* Tokenizes the files of a profile: a saved chat as in the chat, other text as plain text. See
 * profile.h. */
#include "app/placement/profile.h"

#include "app/common/transcript.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

#include <stdio.h>
#include <string.h>

int profile_chat_tokens(const struct engine *g, const struct message *m, size_t n, int **ids,
                        int *n_ids, struct error *e)
{
    const struct engine_info *info = engine_info(g);
    struct strbuf b = {0};
    int rc;

    *ids = NULL;
    *n_ids = 0;
    if (info->chat)
        return chat_template_encode(info->chat, m, n, NULL, false, NULL, ids, n_ids, NULL, e);
    for (size_t i = 0; i < n; i++) {
        strbuf_puts(&b, m[i].text);
        strbuf_puts(&b, "\n");
    }
    rc = b.failed || !info->tokenizer
             ? error_set(e, ERR_MODEL, "the chat cannot be read as tokens")
             : tokenizer_encode(info->tokenizer, b.data, b.len, false, ids, n_ids, e);
    strbuf_release(&b);
    return rc;
}

static int read_chat(const struct engine *g, const char *text, size_t size, const char *name,
                     size_t *messages, int **ids, int *n, struct error *e)
{
    struct transcript t;
    struct message *m = NULL;
    int rc;

    transcript_init(&t);
    rc = transcript_read(&t, text, size, name, e);
    if (rc == 0 && t.n == 0)
        rc = error_set(e, ERR_INPUT, "%s: no messages in it", name);
    if (rc == 0)
        rc = transcript_messages(&t, &m, messages, e);
    if (rc == 0) {
        rc = profile_chat_tokens(g, m, *messages, ids, n, e);
        for (size_t i = 0; i < *messages; i++)
            mem_free(m[i].text);
        mem_free(m);
    }
    transcript_release(&t);
    return rc;
}

static void describe(enum profile_reading how, size_t messages, int n, char *out, size_t size)
{
    if (how == PROFILE_CHAT)
        snprintf(out, size, "read as a chat of %zu message%s, with its chat markers: %d tokens",
                 messages, messages == 1 ? "" : "s", n);
    else if (how == PROFILE_MARKED)
        snprintf(out, size, "read as text with special tokens in it: %d tokens", n);
    else
        snprintf(out, size, "read as plain text: %d tokens", n);
}

int profile_tokens(const struct engine *g, const char *text, size_t size, const char *name,
                   bool parse_special, struct profile_text_read *out, struct error *e)
{
    const struct tokenizer *t = engine_info(g)->tokenizer;
    size_t messages = 0;
    int rc;

    *out = (struct profile_text_read){.how = parse_special ? PROFILE_MARKED : PROFILE_PLAIN};
    if (!t)
        return error_set(e, ERR_MODEL, "expert profiles need a model with a tokenizer");
    if (transcript_recognised(text, size)) {
        out->how = PROFILE_CHAT;
        rc = read_chat(g, text, size, name, &messages, &out->ids, &out->n, e);
    } else {
        rc = tokenizer_encode(t, text, size, parse_special, &out->ids, &out->n, e);
    }
    if (rc == 0 && out->n == 0)
        rc = error_set(e, ERR_INPUT, "%s: no text in it", name);
    if (rc < 0) {
        mem_free(out->ids);
        out->ids = NULL;
    }
    describe(out->how, messages, out->n, out->said, sizeof out->said);
    return rc;
}

const char *profile_reading_word(enum profile_reading how)
{
    static const char *const words[] = {"text", "text with special tokens", "chat"};

    return words[how];
}
