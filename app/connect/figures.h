/* A server's figures: from /metrics (Prometheus text) by the names of moetop, llama-server, vLLM
 * and SGLang, else from llama-server's /slots. Pure parsing; any thread. */
#ifndef APP_CONNECT_FIGURES_H
#define APP_CONNECT_FIGURES_H

#include <stdbool.h>
#include <stddef.h>

/* NAN: not reported. */
struct figures {
    double running, waiting; /* requests */
    double kv;               /* share of the KV cache in use, 0 .. 1 */
    double decode_tok_s;     /* of all its clients */
    double cached;           /* share of prompt tokens that were cached, 0 .. 1 */
    char why[80];            /* why there are no figures; "": there are some */
};

/* All NAN. */
void figures_init(struct figures *f);
/* false: none of the names was found. Samples of several label sets are summed, shares averaged. */
bool figures_read_metrics(struct figures *f, const char *text, size_t n);
/* llama-server's list of slots. */
bool figures_read_slots(struct figures *f, const char *text, size_t n);

#endif
