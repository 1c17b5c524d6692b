/* See cache_doctor.h. The prompt is rendered again to find its messages, but only if tokens were
 * lost. */
#include "app/chat/cache_doctor.h"

#include "engine/base/clock.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

#include <stdio.h>
#include <string.h>

#define SHOWN 6 /* tokens printed */

static int alike(const int *a, int n, const int *b, int m)
{
    int i = 0;

    while (i < n && i < m && a[i] == b[i])
        i++;
    return i;
}

/* The text of some tokens, escaped for one line. */
static void spell(const struct engine_info *info, const int *ids, int n, char *out, size_t size)
{
    char text[256];
    struct detokenizer d;
    size_t len = 0;

    detokenizer_init(&d, info->tokenizer, false);
    d.at_start = false;
    for (int i = 0; i < n && i < SHOWN && len + 32 < sizeof text; i++)
        len += detokenizer_push(&d, ids[i], text + len, sizeof text - len);
    utf8_escape(out, size, text, len, 0);
}

static bool contains(const int *in, int n, const int *what, int m, int at)
{
    for (int i = 0; m > 0 && i + m <= n; i++)
        if (memcmp(in + i, what, (size_t)m * sizeof *what) == 0)
            return at >= i && at < i + m;
    return false;
}

/* The message that token `at` of the prompt belongs to, and whether it is part of its text. m: the
 * messages of the prompt. */
static void place(struct cache_story *s, const struct engine_info *info, const struct message *m,
                  size_t n, int at)
{
    int *starts = mem_alloc(n + 1, sizeof *starts), *ids = NULL, *own = NULL, n_ids, n_own;
    size_t i = 0;

    if (!starts ||
        chat_template_encode(info->chat, m, n, NULL, true, NULL, &ids, &n_ids, starts, NULL) < 0)
        goto out;
    while (i < n && starts[i + 1] <= at)
        i++;
    if (i == n)
        goto out;
    s->message = (int)i + 1;
    s->role = m[i].role;
    if (m[i].text && tokenizer_encode(info->tokenizer, m[i].text, strlen(m[i].text), false, &own,
                                      &n_own, NULL) == 0)
        s->in_text = contains(ids + starts[i], starts[i + 1] - starts[i], own, n_own,
                              at - starts[i]);
out:
    mem_free(own);
    mem_free(ids);
    mem_free(starts);
}

/* The line of the template that produced the first token that differs. */
static void find_line(struct cache_story *s, const struct engine_info *info,
                      const struct message *m, size_t n, int at)
{
    char *text = NULL;

    if (chat_template_line(info->chat, m, n, NULL, true, at, &s->line, &text, NULL) == 0 && text)
        utf8_escape(s->line_text, sizeof s->line_text, text, strlen(text), 0);
    mem_free(text);
}

static void judge(struct cache_story *s, const struct message *m, bool shifted)
{
    if (shifted) {
        s->why = "the context is full: the oldest messages were left out";
        s->advice = "a larger context (-c), or /compact, which puts a summary in their place";
    } else if (!s->message) {
        s->why = "the template begins an answer in another way than the last one ended";
        s->advice = "nothing is wrong; --reasoning and --chat-template-kwargs decide how";
    } else if (s->role == ROLE_SYSTEM) {
        s->why = "the system message is another one";
        s->advice = "keep what changes (a date, a count) out of it, or say it in your last message";
    } else if (s->role == ROLE_ASSISTANT && m->reasoning) {
        s->why = "the template leaves out what the model thought in earlier answers";
        s->advice = "so the model was taught; shorter thoughts (--reasoning off) lose less";
    } else if (!s->in_text) {
        s->why = "the template writes this message otherwise now";
        s->advice = "a template that counts messages or puts in the date does so every turn";
    } else {
        s->why = s->role == ROLE_USER ? "this message was edited, or another branch goes on here"
                                      : "this answer is another one than was computed last";
        s->advice =
            "what stands behind a change is read anew; change late messages, not early ones";
    }
}

void cache_story_begin(struct cache_story *s, const struct engine_info *info, const int *old,
                       int n_old, const struct prompt *prompt, const struct dialogue *said,
                       int dropped_before, int dropped)
{
    const struct message *m = said->messages;
    size_t n = said->n_messages - (said->continue_last && said->n_messages ? 1 : 0);
    size_t system = n && m[0].role == ROLE_SYSTEM ? 1 : 0;
    struct message *kept;
    int at = alike(old, n_old, prompt->ids, prompt->n);

    *s = (struct cache_story){.held = n_old, .alike = at, .prompt = prompt->n};
    if (at >= n_old || at >= prompt->n || said->raw || !info->chat || !info->tokenizer)
        return;
    spell(info, old + at, n_old - at, s->was, sizeof s->was);
    spell(info, prompt->ids + at, prompt->n - at, s->is, sizeof s->is);
    if (dropped < 0 || (size_t)dropped > n - system || !(kept = mem_alloc(n, sizeof *kept)))
        return;
    memcpy(kept, m, system * sizeof *kept);
    memcpy(kept + system, m + system + (size_t)dropped,
           (n - system - (size_t)dropped) * sizeof *kept);
    place(s, info, kept, n - (size_t)dropped, at);
    find_line(s, info, kept, n - (size_t)dropped, at);
    judge(s, s->message ? &kept[s->message - 1] : NULL, dropped > dropped_before);
    if (s->message > (int)system)
        s->message += dropped;
    mem_free(kept);
}

void cache_story_end(struct cache_story *s, const struct turn_done_event *done)
{
    int could = s->held < s->prompt ? s->held : s->prompt - 1;
    int computed = done->prompt_tokens - done->cached_tokens;

    s->reused = done->cached_tokens;
    s->stored = done->stored_tokens;
    s->lost = could > s->reused ? could - s->reused : 0;
    /* the last token in the cache is often computed again, because its logits were not computed */
    if (s->lost <= 1 && s->alike >= could)
        s->lost = 0;
    s->seconds = computed > 0 ? clock_seconds(done->prefill_ns) *
                                    (s->lost < computed ? s->lost : computed) / computed
                              : 0;
    if (s->lost && !s->why) {
        s->why = "the session could not go back to that very token";
        s->advice = "recurrent layers and windows go back to copies, which are made every 256 "
                    "tokens and before messages";
    }
}

void cache_story_print(const struct cache_story *s, struct strbuf *b)
{
    static const char *const roles[] = {"system", "user's", "model's", "tool's"};

    strbuf_printf(b, "%d tokens were held, the message's prompt has %d, %d of them were reused\n",
                  s->held, s->prompt, s->reused);
    if (s->stored)
        strbuf_printf(b, "of those %d came from the disk\n", s->stored);
    if (!s->lost) {
        strbuf_puts(b, s->held || s->stored ? "nothing was computed twice\n"
                                            : "it was the first one\n");
        return;
    }
    strbuf_printf(b, "computed again: %d tokens, %.2f s\n", s->lost, s->seconds);
    if (s->was[0] || s->is[0]) {
        strbuf_printf(b, "first difference: token %d, ", s->alike);
        if (s->message)
            strbuf_printf(b, "in message %d (the %s%s), %s", s->message, roles[s->role],
                          s->role == ROLE_SYSTEM ? " message" : "",
                          s->in_text ? "in its text" : "in what the template puts around its text");
        else
            strbuf_puts(b, "where the answer begins");
        strbuf_printf(b, "\n  was \"%s\"\n  is  \"%s\"\n", s->was, s->is);
        if (s->line)
            strbuf_printf(b, "  line %d of the template: %s\n", s->line, s->line_text);
    }
    strbuf_printf(b, "why: %s\nwhat to do: %s\n", s->why, s->advice);
}
