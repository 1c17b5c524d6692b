/* Figures of routing traces (--routing-report). Formulas: moetop-lab(7), and again, on their own,
 * in tests/tools/routing_report.py. Main thread; reports are the caller's. */
#ifndef APP_LAB_REPORT_H
#define APP_LAB_REPORT_H

#include "app/lab/trace_read.h"

#include <jansson.h>
#include <stdio.h>

#define REPORT_PAIRS 10
#define REPORT_SAMPLES 200 /* of the bootstrap */

/* A figure with its 95 % interval. */
struct spanned {
    double value, low, high;
};

/* What the choice of the first expert may depend on. */
/* clang-format off */
#define FACTOR_TABLE(X)          \
    X(FACTOR_CLASS,    "class")    \
    X(FACTOR_ROLE,     "role")     \
    X(FACTOR_POSITION, "position") \
    X(FACTOR_SCRIPT,   "script")   \
    X(FACTOR_LANGUAGE, "language") \
    X(FACTOR_HALF,     "half")
/* clang-format on */
enum factor {
#define X(name, word) name,
    FACTOR_TABLE(X)
#undef X
        FACTORS
};
extern const char *const factor_words[FACTORS];

/* Pearson's chi-square of a table; dof 0: there is nothing to compare. p_holm: corrected for all
 * tests of the trace (Holm 1979). v: Cramér's V. */
struct chi_square {
    double chi2, p, p_holm, v;
    int dof;
    uint64_t n;
};

struct expert_pair {
    int a, b;
    uint64_t count;
    double expected, lift;
};

/* Of the router's margin at a token to -ln p of the next one; n 0: there is none. rho: Spearman's
 * rank correlation. low, high: perplexity of the tokens behind the quarter of least margins, behind
 * that of the largest. */
struct relation {
    uint64_t n;
    struct spanned rho;
    double low, high;
};

struct layer_report {
    int layer, experts, used;
    double *counts;                         /* (experts) tokens that chose it */
    struct spanned entropy, gini, max_mean; /* entropy in bits */
    double entropy_share, unused;
    /* share of a token's experts that the token before it had too; if both were drawn by the counts
     */
    uint64_t follow;
    double persistence, persistence_chance;
    /* share of its experts that the layer before tells; that the counts alone do. before -1: there
     * is no such layer */
    int before;
    uint64_t ahead_tokens;
    double ahead, ahead_chance;
    int n_pairs;
    struct expert_pair pairs[REPORT_PAIRS]; /* by lift, largest first */
    struct chi_square tests[FACTORS];
    double drift; /* Jensen-Shannon divergence of the second half from the first, bits */
    /* least score of the chosen less the largest of the others; if the trace has scores */
    double margin_mean, margin_median, margin_p10;
    struct relation relation; /* if it has log-probabilities, too */
};

/* A language of TRACE_STOPWORDS, or a script behind them. 0: unknown. */
#define REPORT_LANGUAGES (TRACE_STOPWORDS + TRACE_SCRIPTS)

/* What k experts a layer give, in tokens a second by the cost model (app/placement/consequences.h):
 * the most used ones on the device, as many bytes as k of each layer take; the first k of each
 * layer there; an expert cache of as many, the others on disk. hits: share of the routers' calls.
 */
#define REPORT_PLACED 16
struct report_placed {
    int experts;
    uint64_t bytes;
    double hot, hot_hits, first, first_hits;
    double cached, cache_hits,
        read; /* cached 0: the disk's rate is not known; read: bytes a token */
};

struct report_placement {
    char none[240]; /* why there are no figures; "": there are */
    char device[120];
    double cpu, gpu, experts_gpu; /* all there */
    double disk;                  /* bytes a second; 0: not known */
    int n;
    struct report_placed rows[REPORT_PLACED];
};

struct trace_report {
    const struct trace *trace;
    int *prev; /* (n) the token before it in its sequence; -1: none */
    /* (n) of its text, NULL: the trace has no scripts; tokens of each */
    uint8_t *language;
    uint64_t languages[REPORT_LANGUAGES];
    double perplexity; /* of the tokens whose log-probability the trace has; 0: none */
    int n_layers;
    struct layer_report *layers; /* those with a router */
    struct report_placement placement;
};

int trace_report_make(struct trace_report *r, const struct trace *t, struct error *e);
void trace_report_release(struct trace_report *r);

/* report_language.c, report_margin.c: parts of it. ERR_MEMORY. */
int report_languages_make(struct trace_report *r, struct error *e);
const char *report_language_word(int language);
int report_margin_make(struct layer_report *r, const struct trace_report *of, struct error *e);

struct layer_comparison {
    int layer;
    struct chi_square test; /* of the first experts' counts */
    double divergence;      /* Jensen-Shannon, bits, of all counts */
    /* of tokens that both have at one sequence and position: share of common experts, same first
     * expert, mean difference of the weights of common ones */
    struct spanned overlap;
    double same_first, weight_difference;
};

struct trace_comparison {
    uint64_t common;
    int n_layers;
    struct layer_comparison *layers;
};

/* ERR_INPUT: of models of different shape. */
int trace_compare(struct trace_comparison *c, const struct trace_report *a,
                  const struct trace_report *b, struct error *e);
void trace_comparison_release(struct trace_comparison *c);

/* report_figures.c: what several of them need */
double figure_entropy(const double *counts, int n);
double figure_gini(const double *counts, int n, double *room); /* room: n values */
double figure_max_mean(const double *counts, int n);
double figure_divergence(const double *a, const double *b, int n);
/* table: (rows, columns) */
struct chi_square figure_chi_square(const double *table, int rows, int columns);
/* Holm's correction of the tests with a dof. ERR_MEMORY. */
int figure_holm(struct chi_square *const *tests, size_t n, struct error *e);
/* The interval of 200 values, sorted by the call. */
void figure_interval(double *values, struct spanned *out);
/* Tokens of a block of the bootstrap, for n tokens. */
uint64_t figure_block(uint64_t n);
/* SplitMix64 (Steele, Lea, Flood 2014): a number below n. */
uint64_t figure_draw(uint64_t *state, uint64_t n);

/* comparison: NULL unless there are two traces. json: NULL: no memory. */
void report_text(FILE *f, const struct trace_report *r, size_t n, const struct trace_comparison *c);
json_t *report_figures_json(const struct trace_report *r, size_t n,
                            const struct trace_comparison *c);
struct report_drawings;
/* One HTML page that needs nothing beside it. ERR_MEMORY, ERR_IO. */
int report_page_write(const char *path, const struct trace_report *r, size_t n,
                      const struct trace_comparison *c, const struct report_drawings *d,
                      struct error *e);

#endif
