/* --choices: multiple-choice questions; the model's answer is the most probable option. An option's
 * score is its log-probability after the question; the normalised one is divided by its bytes, as
 * in lm-evaluation-harness. */
#include "app/quality/choices.h"

#include "app/common/signals.h"
#include "app/quality/quality.h"
#include "app/quality/score.h"
#include "app/setup/test_text.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/strbuf.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIONS 26 /* a letter each */

bool choices_wanted(const struct options *o)
{
    return o->choices;
}

/* Names of the keys: ours; MMLU and ARC; HellaSwag. */
static const char *const question_keys[] = {"question", "query", "ctx", "context", "prompt"};
static const char *const option_keys[] = {"options", "choices", "endings"};
static const char *const answer_keys[] = {"answer", "label", "answerKey", "gold"};

#define FIND(root, keys) find(root, keys, sizeof keys / sizeof *keys)

static const json_t *find(const json_t *root, const char *const *keys, size_t n)
{
    const json_t *v = NULL;

    for (size_t i = 0; i < n && !v; i++)
        v = json_object_get(root, keys[i]);
    return v;
}

struct question {
    const char *text;
    const json_t *options; /* strings */
    int n, answer;
};

/* A number; a number as text; a letter; or a name among the labels. -1: none of these. */
static int read_answer(const json_t *v, const json_t *labels)
{
    const char *s = json_string_value(v);
    char *end;
    long n;

    if (json_is_integer(v))
        return json_integer_value(v) >= 0 && json_integer_value(v) < OPTIONS
                   ? (int)json_integer_value(v)
                   : -1;
    if (!s)
        return -1;
    for (size_t i = 0; i < json_array_size(labels); i++)
        if (json_is_string(json_array_get(labels, i)) &&
            strcmp(json_string_value(json_array_get(labels, i)), s) == 0)
            return (int)i;
    n = strtol(s, &end, 10);
    if (*s && !*end)
        return n >= 0 && n < OPTIONS ? (int)n : -1;
    return strlen(s) == 1 && isalpha((unsigned char)*s) ? toupper((unsigned char)*s) - 'A' : -1;
}

static int read_question(const json_t *root, struct question *q, struct error *e)
{
    const json_t *labels = NULL;

    q->text = json_string_value(FIND(root, question_keys));
    q->options = FIND(root, option_keys);
    if (json_is_object(q->options)) { /* ARC: {"text": [...], "label": [...]} */
        labels = json_object_get(q->options, "label");
        q->options = json_object_get(q->options, "text");
    }
    q->n = (int)json_array_size(q->options);
    if (!q->text || q->n < 2 || q->n > OPTIONS)
        return error_set(e, ERR_INPUT,
                         "\"question\", a string, and \"options\", an array of 2 to %d strings, "
                         "are wanted",
                         OPTIONS);
    for (int i = 0; i < q->n; i++)
        if (!json_is_string(json_array_get(q->options, (size_t)i)) ||
            !json_string_length(json_array_get(q->options, (size_t)i)))
            return error_set(e, ERR_INPUT, "option %d is no text", i);
    q->answer = read_answer(FIND(root, answer_keys), labels);
    if (q->answer < 0 || q->answer >= q->n)
        return error_set(e, ERR_INPUT,
                         "\"answer\" is none of its %d options (their number from 0, a letter from "
                         "A, or a label)",
                         q->n);
    return 0;
}

/* ln p of the option after the question and a blank. */
static int score_option(struct engine *g, int bos, const char *question, const char *option,
                        double *score, struct error *e)
{
    struct strbuf whole = {0};
    int *ids = NULL, *before = NULL, n, n_before, same = 0, rc;
    double sum = 0.0;

    strbuf_puts(&whole, question);
    if (*question && !isspace((unsigned char)question[strlen(question) - 1]) && *option != ' ')
        strbuf_putc(&whole, ' ');
    strbuf_puts(&whole, option);
    rc = whole.failed ? error_set(e, ERR_MEMORY, "out of memory for a question") : 0;
    if (rc == 0 && (rc = score_encode(g, bos, whole.data, whole.len, false, &ids, &n, e)) == 0)
        rc = score_encode(g, bos, question, strlen(question), false, &before, &n_before, e);
    if (rc == 0 && n > engine_info(g)->context)
        rc = error_set(e, ERR_INPUT, "%d tokens; the context (-c) holds %d", n,
                       engine_info(g)->context);
    if (rc == 0) {
        while (same < n_before && same < n - 1 && ids[same] == before[same])
            same++;
        rc = same ? score_surprise(g, ids, n, same - 1, &sum, e)
                  : error_set(e, ERR_INPUT,
                              "no token of the question stands before its options: nothing "
                              "predicts them");
    }
    *score = -sum;
    strbuf_release(&whole);
    mem_free(ids);
    mem_free(before);
    return rc;
}

static int score_options(struct engine *g, int bos, const struct question *q, double *scores,
                         struct error *e)
{
    int rc = 0;

    for (int i = 0; i < q->n && rc == 0; i++)
        rc = score_option(g, bos, q->text, json_string_value(json_array_get(q->options, (size_t)i)),
                          &scores[i], e);
    return rc;
}

/* ---- asked more than once ---- */

struct choice_list {
    json_t **roots; /* which the questions point into */
    struct question *all;
    size_t n;
};

static int add_line(void *ctx, const char *line, size_t size, int number, struct error *e)
{
    struct choice_list *l = ctx;
    json_t *root = json_read(line, size, "the line", e);

    if (!root)
        return ERR_INPUT;
    if (!MEM_FIT(l->roots, l->n + 1) || !MEM_FIT(l->all, l->n + 1)) {
        json_decref(root);
        return error_set(e, ERR_MEMORY, "out of memory for the questions");
    }
    l->roots[l->n] = root;
    l->all[l->n] = (struct question){0};
    return read_question(root, &l->all[l->n++], e);
}

int choices_read(struct choice_list **out, const char *text, size_t size, struct error *e)
{
    struct choice_list *l = mem_alloc(1, sizeof *l);
    int rc = l ? score_lines("questions", text, size, add_line, l, e)
               : error_set(e, ERR_MEMORY, "out of memory for the questions");

    *out = NULL;
    if (rc < 0)
        choices_free(l);
    else
        *out = l;
    return rc;
}

void choices_free(struct choice_list *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->n; i++)
        json_decref(l->roots[i]);
    mem_free(l->roots);
    mem_free(l->all);
    mem_free(l);
}

int choices_count(const struct choice_list *l)
{
    return (int)l->n;
}

int choices_ask(const struct choice_list *l, int i, struct engine *g, int bos, double *surprise,
                bool *right, struct error *e)
{
    const struct question *q = &l->all[i];
    double scores[OPTIONS], sum = 0.0;
    int rc = score_options(g, bos, q, scores, e), best = 0;

    if (rc < 0)
        return rc;
    for (int k = 1; k < q->n; k++)
        best = scores[k] > scores[best] ? k : best;
    for (int k = 0; k < q->n; k++)
        sum += exp(scores[k] - scores[best]);
    *surprise = log(sum) + scores[best] - scores[q->answer];
    *right = best == q->answer;
    return 0;
}

/* ---- --choices ---- */

struct tally {
    struct engine *g;
    int bos;
    int questions, right, right_normalised;
    double chance;
    json_t *lines;
};

static int answer(struct tally *t, const struct question *q, struct error *e)
{
    double best = -DBL_MAX, best_normalised = -DBL_MAX;
    double all[OPTIONS] = {0};
    int chosen = 0, normalised = 0, rc = score_options(t->g, t->bos, q, all, e);
    json_t *scores = json_array();

    for (int i = 0; i < q->n && rc == 0; i++) {
        double score = all[i],
               each = score / (double)json_string_length(json_array_get(q->options, (size_t)i));

        if (score > best) {
            best = score;
            chosen = i;
        }
        if (each > best_normalised) {
            best_normalised = each;
            normalised = i;
        }
        json_array_append_new(scores, json_real(score));
    }
    t->questions++;
    t->right += chosen == q->answer;
    t->right_normalised += normalised == q->answer;
    t->chance += 1.0 / q->n;
    json_array_append_new(t->lines,
                          json_pack("{s:i, s:i, s:i, s:o}", "answer", q->answer, "chosen", chosen,
                                    "chosen_normalised", normalised, "scores", scores));
    return rc;
}

static int answer_line(void *ctx, const char *line, size_t size, int number, struct error *e)
{
    struct question q = {0};
    json_t *root = json_read(line, size, "the line", e);
    int rc = root ? read_question(root, &q, e) : ERR_INPUT;

    if (rc == 0)
        rc = answer(ctx, &q, e);
    json_decref(root);
    return rc;
}

static double share(int right, int n, double *error)
{
    double p = (double)right / n;

    *error = n > 1 ? sqrt(p * (1.0 - p) / (n - 1)) : 0.0;
    return p;
}

static int report(const struct options *o, const struct engine *g, struct tally *t, struct error *e)
{
    double error, error_normalised, p = share(t->right, t->questions, &error),
                                    q = share(t->right_normalised, t->questions, &error_normalised);
    json_t *lines = t->lines;

    t->lines = NULL;
    printf("accuracy            %6.2f %% ± %.2f\n", 100.0 * p, 100.0 * error);
    printf("  normalised        %6.2f %% ± %.2f\n", 100.0 * q, 100.0 * error_normalised);
    printf("  by chance         %6.2f %%\n", 100.0 * t->chance / t->questions);
    printf("questions           %6d\n", t->questions);
    if (fflush(stdout)) {
        json_decref(lines);
        return output_failed("the accuracy", errno, e);
    }
    return score_report(o, g,
                        json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:o}", "questions", t->questions,
                                  "accuracy", p, "accuracy_error", error, "accuracy_normalised", q,
                                  "accuracy_normalised_error", error_normalised, "chance",
                                  t->chance / t->questions, "lines", lines),
                        e);
}

int choices_run(struct options *o, struct error *e)
{
    struct tally t = {.lines = json_array()};
    char *text = NULL;
    size_t size;
    int rc = test_text_read(o->choices, &text, &size, e);

    if (rc == 0)
        rc = score_open(o, 0, &t.g, e);
    if (rc == 0 && (rc = score_bos(t.g, &t.bos, e)) == 0 &&
        (rc = score_lines("choices", text, size, answer_line, &t, e)) < 0)
        error_prefix(e, "%s", o->choices);
    if (rc == 0)
        rc = report(o, t.g, &t, e);
    json_decref(t.lines);
    mem_free(text);
    engine_close(t.g);
    return rc;
}
