/* --perplexity-lines: scores each line of a JSON Lines file as a separate text, all of its tokens.
 * One line of output for each, and one for all of them at the end. */
#include "app/quality/quality.h"

#include "app/common/signals.h"
#include "app/quality/score.h"
#include "app/setup/test_text.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool perplexity_lines_wanted(const struct options *o)
{
    return o->perplexity_lines;
}

/* "ids" as they are. */
static int read_ids(const struct engine *g, const json_t *list, int **ids, int *n, struct error *e)
{
    size_t count = json_array_size(list);

    if (!(*ids = mem_alloc(count + 1, sizeof **ids)))
        return error_set(e, ERR_MEMORY, "out of memory for %zu ids", count);
    for (size_t i = 0; i < count; i++) {
        const json_t *v = json_array_get(list, i);

        if (!json_is_integer(v) || json_integer_value(v) < 0 ||
            json_integer_value(v) >= engine_info(g)->model->hp.n_vocab)
            return error_set(e, ERR_INPUT, "element %zu of 'ids' is no token of the model", i);
        (*ids)[i] = (int)json_integer_value(v);
    }
    *n = (int)count;
    return 0;
}

/* "text", after the token that the model needs before a text (BOS). */
static int read_text(const struct engine *g, const json_t *text, bool special, int **ids, int *n,
                     struct error *e)
{
    int bos, rc = score_bos(g, &bos, e);

    return rc ? rc
              : score_encode(g, bos, json_string_value(text), json_string_length(text), special,
                             ids, n, e);
}

static int read_line(const struct engine *g, const char *line, size_t size, bool special, int **ids,
                     int *n, struct error *e)
{
    json_t *root = json_read(line, size, "the line", e);
    const json_t *list = json_object_get(root, "ids"), *text = json_object_get(root, "text");
    int rc;

    *ids = NULL;
    *n = 0;
    if (!root)
        return ERR_INPUT;
    if (json_is_array(list))
        rc = read_ids(g, list, ids, n, e);
    else if (json_is_string(text))
        rc = read_text(g, text, special, ids, n, e);
    else
        rc = error_set(e, ERR_INPUT, "neither \"text\", a string, nor \"ids\", an array, is in it");
    json_decref(root);
    if (rc == 0 && (*n < 2 || *n > engine_info(g)->context))
        rc = error_set(e, ERR_INPUT, "%d tokens; 2 to %d (-c) can be scored", *n,
                       engine_info(g)->context);
    return rc;
}

struct total {
    struct engine *g;
    bool special; /* special tokens are parsed in texts */
    double nll;
    long tokens, lines;
};

static int score_line(void *ctx, const char *line, size_t size, int number, struct error *e)
{
    struct total *t = ctx;
    double nll;
    int *ids, n, rc = read_line(t->g, line, size, t->special, &ids, &n, e);

    if (rc == 0 && (rc = score_surprise(t->g, ids, n, 0, &nll, e)) == 0) {
        printf("{\"line\": %d, \"tokens\": %d, \"nll\": %.6f, \"perplexity\": %.6f}\n", number,
               n - 1, nll, exp(nll / (n - 1)));
        t->nll += nll;
        t->tokens += n - 1;
        t->lines++;
    }
    mem_free(ids);
    return rc;
}

int perplexity_lines_run(struct options *o, struct error *e)
{
    struct total t = {.special = o->parse_special};
    char *text = NULL;
    size_t size;
    int rc = test_text_read(o->perplexity_lines, &text, &size, e);

    if (rc == 0)
        rc = score_open(o, 0, &t.g, e);
    if (rc == 0 && (rc = score_lines("perplexity", text, size, score_line, &t, e)) < 0)
        error_prefix(e, "%s", o->perplexity_lines);
    if (rc == 0) {
        printf("{\"lines\": %ld, \"tokens\": %ld, \"nll\": %.6f, \"perplexity\": %.6f}\n", t.lines,
               t.tokens, t.nll, exp(t.nll / (double)t.tokens));
        rc = fflush(stdout)
                 ? output_failed("the perplexities", errno, e)
                 : score_report(o, t.g,
                                json_pack("{s:I, s:I, s:f, s:f}", "lines", (json_int_t)t.lines,
                                          "tokens", (json_int_t)t.tokens, "nll", t.nll,
                                          "perplexity", exp(t.nll / (double)t.tokens)),
                                e);
    }
    mem_free(text);
    engine_close(t.g);
    return rc;
}
