/* --bench --connect: a server under a load of requests, for each number of clients, compared with
 * the same load on a local model. Both run in turn, so that changes of machine and network affect
 * both alike. Main thread. */
#include "app/bench/args.h"
#include "app/bench/internal.h"
#include "app/bench/load_report.h"
#include "app/common/signals.h"
#include "app/common/turns.h"
#include "app/setup/parallel.h"
#include "engine/base/mem.h"

#define CLIENTS_LIST 16
#define GEN_DEFAULT 128

struct load_mode {
    const struct options *o;
    struct load_requests requests;
    struct answerer sides[2];
    int n_sides, clients[CLIENTS_LIST], n_clients;
    int at;                      /* index of the number of clients being measured */
    struct load_result *results; /* (n_clients, n_sides) */
};

static int read_tokens(const struct options *o, int *out, struct error *e)
{
    int *n = NULL, rc = 0;
    size_t count = 0;

    *out = GEN_DEFAULT;
    if (o->bench_gen.n && (rc = bench_numbers(&o->bench_gen, "-n", &n, &count, e)) == 0 && count)
        *out = n[0];
    mem_free(n);
    if (rc == 0 && (*out < 1 || count > 1))
        return error_set(e, ERR_USAGE, "--bench --connect takes one number of tokens above 0 (-n)");
    return rc;
}

static int open_sides(struct load_mode *m, struct error *e)
{
    const struct options *o = m->o;
    int most = parallel_most(o), rc;

    m->n_sides = 1;
    if ((rc = answerer_remote(&m->sides[0], o, e)) < 0 || !o->bench_beside)
        return rc;
    m->n_sides = 2;
    return answerer_local(&m->sides[1], o, o->bench_beside, most, e);
}

/* One request each, not counted. */
static int warm_up(struct load_mode *m, struct error *e)
{
    struct load_requests one = {m->requests.request, 1};
    int rc = 0;

    for (int i = 0; i < m->n_sides && rc == 0; i++) {
        struct load_result none = {0};

        rc = load_run(&m->sides[i], &one, 1, &none, e);
        if (rc == 0 && none.failed) /* further ones would fail too */
            rc = error_set(e, none.first.code, "%s", none.first.text);
        load_result_release(&none);
    }
    return rc;
}

static int run_side(void *ctx, size_t side, size_t position, int round, struct error *e)
{
    struct load_mode *m = ctx;

    return load_run(&m->sides[side], &m->requests, m->clients[m->at],
                    &m->results[(size_t)(m->at * m->n_sides) + side], e);
}

static int run_all(struct load_mode *m, struct error *e)
{
    const struct turns turns = {
        .n_arms = (size_t)m->n_sides, .rounds = m->o->bench_repetitions, .run = run_side, .ctx = m};
    int rc = 0;

    for (m->at = 0; m->at < m->n_clients && rc == 0; m->at++)
        rc = turns_run(&turns, e);
    return rc;
}

static int put_results(FILE *f, const void *ctx, struct error *e)
{
    const struct load_mode *m = ctx;

    return load_report_write(f, REPORT_JSON, m->results, (size_t)(m->n_clients * m->n_sides), e);
}

static int report(const struct load_mode *m, struct error *e)
{
    size_t n = (size_t)(m->n_clients * m->n_sides), failed = 0, all = 0;
    const struct error *first = NULL;
    int rc = load_report_write(stdout, (enum report_format)m->o->bench_format, m->results, n, e);

    if (rc == 0 && m->o->bench_output)
        rc = report_file(m->o->bench_output, put_results, m, e);
    for (size_t i = 0; i < n; i++) {
        failed += (size_t)m->results[i].failed;
        all += (size_t)m->results[i].failed + m->results[i].requests;
        if (m->results[i].failed && !first)
            first = &m->results[i].first;
    }
    if (rc == 0 && failed)
        return error_set(e, first->code, "%zu of %zu requests failed; the first: %s", failed, all,
                         first->text);
    return rc;
}

int bench_load(const struct options *o, struct error *e)
{
    struct load_mode m = {.o = o};
    int tokens, rc;

    signals_catch();
    if ((rc = parallel_check(o, e)) < 0 || (rc = read_tokens(o, &tokens, e)) < 0)
        return rc;
    m.n_clients = parallel_numbers(o, m.clients, CLIENTS_LIST);
    if (m.n_clients > CLIENTS_LIST)
        return error_set(e, ERR_USAGE, "--bench takes at most %d numbers for --parallel",
                         CLIENTS_LIST);
    if ((rc = load_requests_read(&m.requests, o->bench_prompts, tokens, e)) == 0 &&
        (rc = open_sides(&m, e)) == 0) {
        m.results = mem_alloc((size_t)(m.n_clients * m.n_sides), sizeof *m.results);
        rc = m.results ? 0 : error_set(e, ERR_MEMORY, "out of memory for the results");
    }
    if (rc == 0 && o->bench_warmup)
        rc = warm_up(&m, e);
    if (rc == 0 && (rc = run_all(&m, e)) == 0)
        rc = report(&m, e);
    for (int i = 0; m.results && i < m.n_clients * m.n_sides; i++)
        load_result_release(&m.results[i]);
    for (int i = 0; i < m.n_sides; i++)
        if (m.sides[i].close)
            m.sides[i].close(&m.sides[i]);
    mem_free(m.results);
    load_requests_release(&m.requests);
    return rc;
}
