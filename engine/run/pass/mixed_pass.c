/* See mixed_pass.h. */
#include "engine/run/pass/mixed_pass.h"

#include "engine/base/clock.h"

/* lower limit for a pass with a chunk beside decoding */
#define MIXED_NS (100 * CLOCK_MILLI)
#define BURST_NS CLOCK_SECOND /* upper limit, however many prompts wait */
#define FIRST_CHUNK 16        /* beside decoding, before anything was measured */

uint64_t scheduler_limit_ns(const struct scheduler *c, int answers, int waiting)
{
    uint64_t one = 2 * c->decode_ns > MIXED_NS ? 2 * c->decode_ns : MIXED_NS,
             all = one + one * 2 * (uint64_t)(waiting - 1) / (uint64_t)answers;

    if (all > BURST_NS)
        all = one > BURST_NS ? one : BURST_NS;
    return all;
}

int scheduler_rows(struct scheduler *c, int answers, int waiting)
{
    double left = (double)(scheduler_limit_ns(c, answers, waiting) - c->decode_ns),
           each = c->row_ns > 0 ? c->row_ns : c->alone_ns,
           rows = each > 0 ? left / each : FIRST_CHUNK;
    int most = 2 * c->chunk > FIRST_CHUNK ? 2 * c->chunk : FIRST_CHUNK;

    c->offered = rows < 1 ? 1 : rows < most ? (int)rows : most;
    return c->offered;
}

void scheduler_learn(struct scheduler *c, int answers, int rows, uint64_t ns)
{
    double each;

    if (!rows) {
        c->decode_ns = ns;
        return;
    }
    if (!answers) {
        c->alone_ns = (double)ns / rows;
        if (c->row_ns == 0)
            c->chunk = rows;
        return;
    }
    if (rows >= c->offered || rows > c->chunk)
        c->chunk = rows;
    each = (ns > c->decode_ns ? (double)(ns - c->decode_ns) : 0.0) / rows;
    c->row_ns = c->row_ns > 0 ? 0.5 * (c->row_ns + each) : each;
}
