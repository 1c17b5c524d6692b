/* What a model said to a message, and where two models' answers to the same one part (--beside).
 * Filled from the events of a turn (probabilities and logprobs wanted). Pure; the thread that owns
 * it. */
#ifndef APP_LAB_SAID_H
#define APP_LAB_SAID_H

#include "engine/base/json.h"
#include "engine/base/strbuf.h"
#include "engine/run/engine.h"

#define SAID_LIKELY 10

struct said_token {
    size_t at; /* of its text in the answer; SIZE_MAX: part of the reasoning */
    int id;
    float probability; /* the model's own, at temperature 1 */
    int n;             /* its likeliest tokens, best first */
    int likely[SAID_LIKELY];
    float likely_probability[SAID_LIKELY];
};

struct said {
    char name[96]; /* "tiny-storyteller Q4_0", and what else tells it from the other one */
    struct strbuf text, thought;
    enum answer_part part; /* of the newest text */
    struct said_token *tokens;
    size_t n_tokens, room;
    struct logprobs_event likely; /* of the next token */
    bool done;                    /* the answer has ended, as `end` says */
    struct turn_done_event end;
    /* how often each expert was chosen, (n_layers, n_experts), layer-major, and how many of a
     * layer's are routed; NULL: not known */
    uint32_t *chosen;
    uint16_t *routed;
    int n_layers, n_experts;
};

/* *s is zero, or is used again: another answer begins. */
void said_begin(struct said *s);
void said_release(struct said *s);
/* An event of its turn. Memory that fails leaves later tokens out. */
void said_note(struct said *s, const struct event *ev);
/* The answer's experts, after its end. ERR_MEMORY. */
int said_experts(struct said *s, const struct telemetry *t, struct error *e);

/* Where two texts part. */
struct parting {
    bool same;         /* they do not */
    size_t bytes;      /* of the answers before it, whole characters */
    size_t token[2];   /* the first token of each that is not the other's; its number of tokens:
                          it ends there */
    bool thinking;     /* the reasoning differs already */
    double distance;   /* of the experts' shares, mean over layers: half the sum of differences,
                          0 .. 1; -1: not comparable */
    int layer, expert; /* the layer of the greatest distance; its expert of the greatest */
    double layer_distance, expert_share[2];
};
void said_part(const struct said *a, const struct said *b, struct parting *p);

/* Of each expert: its share of its layer's choices in a less that in b; (n_layers, n_experts),
 * mem_*; NULL: not comparable, or no memory. */
float *said_difference(const struct said *a, const struct said *b);
/* A token's text as in the middle of an answer; "": there is none (info NULL: no model). size: at
 * least 16. */
void said_token_text(const struct engine_info *info, int id, char *out, size_t size);
/* The same with marks for blanks and line ends. */
void said_token_put(struct strbuf *b, const struct engine_info *info, int id);
/* The comparison as lines of text; texts of tokens come from each one's own tokenizer. */
void said_print(const struct said *a, const struct engine_info *of_a, const struct said *b,
                const struct engine_info *of_b, struct strbuf *out);
/* The same as an object: {"same", "bytes", "first": {...}, "second": {...}, "experts": {...}};
 * NULL: no memory. */
json_t *said_json(const struct said *a, const struct engine_info *of_a, const struct said *b,
                  const struct engine_info *of_b);

#endif
