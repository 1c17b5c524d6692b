/* Between clients (the UI thread) and the engine thread: commands down (a mailbox), events up (a
 * ring with a coalesced eventfd a client). Plain data; a pointer inside a message belongs to the
 * receiver, who frees it with command_release / event_release. */
#ifndef ENGINE_RUN_MESSAGES_H
#define ENGINE_RUN_MESSAGES_H

#include "engine/layout/lora.h"
#include "engine/base/message.h"
#include "engine/placement/plan.h"
#include "engine/run/sampling/sampling.h"
#include "engine/text/answer_parts.h"
#include "engine/text/grammar/grammar.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum stop_reason {
    STOP_NONE,
    STOP_TOKEN,
    STOP_LENGTH,
    STOP_CANCELLED,
    STOP_CONTEXT,
    STOP_STRING,
    STOP_ERROR
};
/* "stop", "length", "cancelled", "context", "string", "error" */
const char *stop_reason_word(enum stop_reason r);

/* What is said, before it is ids: a whole conversation, or text to be continued. */
struct dialogue {
    struct message *messages;
    size_t n_messages;
    bool raw;           /* the messages' texts are continued as they stand, no template */
    bool continue_last; /* the last message is an assistant's, to be continued */
    bool whole;         /* no turn is left out: ERR_CONTEXT where it does not fit */
    /* a JSON object whose members the template finds by name ("tools"), a reference; NULL: none */
    struct json_t *given;
};

#define PROMPT_MARKS 4

/* What prompt_make (engine/run/prompt.h) makes of a dialogue, on the thread of who asks. */
struct prompt {
    int *ids, n;
    bool goes_on;      /* the answer goes on in the middle of a text: its first space counts */
    int dropped_turns; /* left out by the overflow policy, which the turn tells */
    struct answer_parts parts; /* how its answer begins; zeroed: all of it is answer */
    uint64_t
        start_ns; /* when its making began: the turn's clocks count from there; 0: they do not */
    /* where its newest messages and the answer begin, upwards: other prompts part from it there
     * (checkpoints.h) */
    int marks[PROMPT_MARKS], n_marks;
};

/* One turn: the engine reuses the KV of the longest prefix that the session shares with the prompt.
 */
struct turn {
    struct prompt prompt;
    struct sampling sampling;
    int max_tokens; /* -1: until it stops */
    bool ignore_eos;
    /* tokens tell theirs, and how many candidates there were: a pass over the vocabulary each */
    bool probabilities;
    /* LOGPROBS goes before every token's TOKEN, with so many likely ones: a pass over the
     * vocabulary each */
    bool logprobs;
    int top_logprobs;
    /* Before them LOGPROBS of every token of the prompt but the first, which is computed whole. */
    bool score_prompt;
    char **stops; /* n_stops strings that end the answer, not shown */
    size_t n_stops;
    /* what the answer must keep to (not what is thought before it); a reference; NULL: nothing */
    struct grammar *grammar;
    char *begun; /* what such an answer says already where it is continued; NULL: nothing */
    /* adapters: their strengths are these from here on, one each; else they stay the session's */
    bool adapters;
    float strengths[LORA_ADAPTERS];
};

enum command_kind {
    COMMAND_TURN,     /* .turn */
    COMMAND_SAMPLING, /* .sampling: from the next token on */
    COMMAND_PLAN,     /* .plan: at the next safe point; ownership passes */
    /* .text: planner spec ("hot:600M"), resolved by the engine against its counts */
    COMMAND_PLACE,
    COMMAND_PACE,   /* .number: tokens a second, 0: off */
    COMMAND_EXPERT, /* .expert: which tokens chose it; answered by EVENT_REPORT */
    /* .number: 1: trace one token a second into the telemetry; 0: stop */
    COMMAND_TIMELINE,
    /* .call: runs between turns on the engine's thread; ends with one EVENT_REPORT, text NULL when
       it has none */
    COMMAND_CALL,
    COMMAND_CLEAR, /* forget KV and session counts */
    COMMAND_OPEN,  /* client_open's and client_close's own */
    COMMAND_CLOSE,
    COMMAND_QUIT,
};

struct engine;
struct error;

struct command {
    enum command_kind kind;
    union {
        struct turn turn;
        struct sampling sampling;
        struct plan *plan;
        char *text;
        struct {
            /* *text: mem_* memory, or left NULL */
            int (*fn)(void *ctx, struct engine *g, char **text, struct error *e);
            void (*release)(void *ctx); /* may be NULL */
            void *ctx;
        } call;
        double number;
        struct {
            int layer, expert;
        } expert;
    };
};

enum event_kind {
    EVENT_LOADING,      /* .progress: bytes */
    EVENT_READY,        /* the model is loaded */
    EVENT_TURN_STARTED, /* .progress.total: prompt tokens, .done: of them cached */
    EVENT_PREFILL,      /* .progress: tokens */
    EVENT_LOGPROBS,     /* .logprobs: of a token of the prompt, or of the token that comes next */
    EVENT_TOKEN,        /* .token */
    EVENT_TURN_DONE,    /* .done_turn */
    /* .text: name of the plan now in force; after each placement asked for, also one that failed.
       .wishes: how many of the worker's COMMAND_PLAN and COMMAND_PLACE are decided by then, the
       first ones sent: what a later one asked for is still to come */
    EVENT_PLAN,
    /* .text: one line worth telling (turns dropped, device lost, fallback); a listener
       that takes it sets it NULL; else it goes to engine_config.log */
    EVENT_NOTICE,
    /* .text: how far long work between turns is; the next one replaces it */
    EVENT_PROGRESS,
    EVENT_REPORT,  /* .text: lines that a command asked for */
    EVENT_ERROR,   /* .failure.code, .text; a turn in progress has ended */
    EVENT_STOPPED, /* the thread has ended */
};

/* A token, or text that was held back because it might have begun a stop string or a marker. */
struct token_event {
    int id;                /* -1: no token, only text */
    enum answer_part part; /* of the answer that the text belongs to */
    /* where the turn asks: the model's own, softmax at temperature 1 over all tokens */
    float probability;
    /* likewise: of the draw, after temperature and cuts; greedy: 1; 0: it was not drawn
     * (--spec-accept took a guess) */
    float share;
    int candidates; /* likewise: left to draw from by the sampler's cuts; greedy: 1 */
    /* the model's own probability of all tokens that the grammar did not allow here */
    float forbidden;
    /* bytes of text that became complete with this token; more than fit follow in events with id -1
     */
    uint16_t len;
    char text[64]; /* NUL-terminated */
    bool first;
    uint64_t compute_ns;
    /* 1, 2, 3 … in this session, as telemetry.session_generated_tokens counts; 0: no token */
    uint64_t serial;
};

#define LOGPROBS_MOST 20

struct logprobs_event {
    int id;
    float logprob; /* natural, of the model's own distribution */
    int n;         /* the likeliest tokens, best first */
    int ids[LOGPROBS_MOST];
    float logprobs[LOGPROBS_MOST];
};

struct turn_done_event {
    enum stop_reason reason;
    int stop; /* STOP_STRING: which of the turn's strings; else 0 */
    int prompt_tokens, cached_tokens, completion_tokens;
    /* of the prompt, what the session had and computed again all the same: its rotary table or the
     * place of its recurrent state asked for it */
    int recomputed_tokens;
    int stored_tokens;     /* of the cached ones, read from the prompt cache on the disk */
    int dropped_turns;     /* by the overflow policy */
    int drafted, accepted; /* tokens that were guessed and verified; those that were right */
    int changed;           /* drafted ones in place of those that were drawn (--spec-accept) */
    /* tokens that a grammar ruled, and of these the sum of what it kept out: the model's own
     * probability of all tokens that were not allowed there */
    int ruled_tokens;
    double forbidden;
    /* some of what it was made of was computed with other lossy settings than the engine was opened
     * with (engine_lossy) */
    bool altered;
    uint64_t ttft_ns, prefill_ns, decode_ns, total_ns;
};

struct event {
    enum event_kind kind;
    union {
        struct {
            uint64_t done, total;
        } progress;
        struct token_event token;
        struct logprobs_event logprobs;
        struct turn_done_event done_turn;
        struct {
            int code;
        } failure;
        uint64_t wishes;
    };
    char *text; /* owned, or NULL */
};

/* frees messages and texts (mem_* memory), leaves zeros */
void dialogue_release(struct dialogue *d);
/* frees ids, stops and begun (all mem_* memory), gives the grammar back, leaves zeros */
void turn_release(struct turn *t);
void command_release(struct command *c);
void event_release(struct event *e);

#endif
