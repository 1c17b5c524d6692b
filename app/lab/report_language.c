/* Which language every token's text is in; see report.h. A text is a message, or a sequence that
 * has none: of one tokens' scripts and stop words are counted. */
#include "app/lab/report.h"

#include "engine/base/mem.h"

#define VOTES_LEAST 2 /* stop words that a text needs */

struct text {
    uint32_t scripts[TRACE_SCRIPTS], votes[TRACE_STOPWORDS];
};

/* The script of most of its tokens; of a Latin one the language of more than half of its stop
 * words. */
static uint8_t language_of(const struct text *t)
{
    int script = 0, language = 0;
    uint32_t all = 0;

    for (int s = 1; s < TRACE_SCRIPTS; s++)
        if (t->scripts[s] && (!script || t->scripts[s] > t->scripts[script]))
            script = s;
    if (script != SCRIPT_LATIN)
        return script ? (uint8_t)(TRACE_STOPWORDS + script) : 0;
    for (int l = 1; l < TRACE_STOPWORDS; l++) {
        all += t->votes[l];
        if (!language || t->votes[l] > t->votes[language])
            language = l;
    }
    return t->votes[language] >= VOTES_LEAST && 2 * t->votes[language] > all ? (uint8_t)language
                                                                             : 0;
}

const char *report_language_word(int language)
{
    return language <= 0                ? "unknown"
           : language < TRACE_STOPWORDS ? trace_stopword_words[language]
                                        : trace_script_words[language - TRACE_STOPWORDS];
}

int report_languages_make(struct trace_report *r, struct error *e)
{
    const struct trace *t = r->trace;
    int *current = mem_alloc((size_t)t->sequences + 1, sizeof *current),
        *message = mem_alloc((size_t)t->sequences + 1, sizeof *message),
        *of = mem_alloc(t->n + 1, sizeof *of);
    struct text *texts = NULL;
    size_t n = 0;
    int rc = 0;

    if (!t->column[COLUMN_SCRIPT])
        goto out;
    if (!current || !message || !of || !(r->language = mem_alloc(t->n + 1, 1))) {
        rc = error_set(e, ERR_MEMORY, "out of memory for the report");
        goto out;
    }
    for (int s = 0; s < t->sequences; s++)
        current[s] = -1;
    for (uint64_t i = 0; i < t->n; i++) {
        int s = trace_int(t, COLUMN_SEQUENCE, i), m = trace_int(t, COLUMN_MESSAGE, i);

        if (current[s] < 0 || message[s] != m) {
            if (!MEM_FIT(texts, n + 1)) {
                rc = error_set(e, ERR_MEMORY, "out of memory for the report");
                goto out;
            }
            texts[n] = (struct text){0};
            current[s] = (int)n++;
            message[s] = m;
        }
        of[i] = current[s];
        texts[of[i]].scripts[*trace_at(t, COLUMN_SCRIPT, i)]++;
        texts[of[i]].votes[*trace_at(t, COLUMN_STOPWORD, i)]++;
    }
    for (uint64_t i = 0; i < t->n; i++) {
        r->language[i] = language_of(&texts[of[i]]);
        r->languages[r->language[i]]++;
    }
out:
    mem_free(current);
    mem_free(message);
    mem_free(of);
    mem_free(texts);
    return rc;
}
