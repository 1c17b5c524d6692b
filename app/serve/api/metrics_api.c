/* /metrics in Prometheus' text format (prometheus.io/docs/instrumenting/exposition_formats). HTTP
 * thread: everything is a copy of what the dispatcher has counted. */
#include "app/serve/api/apis.h"
#include "app/serve/common/exchange.h"
#include "app/serve/common/server.h"
#include "app/serve/dispatch/dispatcher.h"

#include "engine/base/clock.h"

#include <limits.h>
#include <string.h>
#include <time.h>

static double ratio(uint64_t of, uint64_t all)
{
    return all ? (double)of / (double)all : 0.0;
}

static double rate(uint64_t n, uint64_t ns)
{
    return ns ? (double)n / clock_seconds(ns) : 0.0;
}

static int context(const struct server *s)
{
    const struct engine_info *info = server_info(s);

    return info ? info->context : 0;
}

static void head(struct strbuf *b, const char *name, const char *type, const char *help)
{
    strbuf_printf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_pass_sizes(struct strbuf *b, const struct pass_figures *p)
{
    static const char name[] = "moetop_pass_answers";
    uint64_t below = 0, sum = p->answering;

    head(b, name, "histogram", "sessions that answered in a pass");
    for (int i = 0; i < PASS_BUCKETS; i++) {
        below += p->answers[i];
        if (pass_bucket_most(i) == INT_MAX)
            strbuf_printf(b, "%s_bucket{le=\"+Inf\"} %llu\n", name, (unsigned long long)below);
        else
            strbuf_printf(b, "%s_bucket{le=\"%d\"} %llu\n", name, pass_bucket_most(i),
                          (unsigned long long)below);
    }
    strbuf_printf(b, "%s_sum %llu\n%s_count %llu\n", name, (unsigned long long)p->answered, name,
                  (unsigned long long)sum);
}

void api_metrics(struct exchange *x)
{
    static const char none[] = "# out of memory\n";
    const struct server *s = x->server;
    struct dispatcher_figures figures;
    const struct dispatcher_figures *f = &figures;
    struct strbuf b = {0};

    dispatcher_look(s->dispatcher, &figures);
#define METRIC(name, type, help, format, value) \
    head(&b, name, type, help);                 \
    strbuf_printf(&b, name " " format "\n", value);
#include "app/serve/api/metrics.def"
#undef METRIC
    put_pass_sizes(&b, &f->passes);
    if (b.failed)
        reply_text(x, 503, "text/plain; version=0.0.4", none, strlen(none));
    else
        reply_text(x, 200, "text/plain; version=0.0.4; charset=utf-8", b.data, b.len);
    strbuf_release(&b);
}
