/* Messages between clients (the UI thread) and the engine thread: commands down (a mailbox), events
 * up (a ring with a coalesced eventfd per client). Plain data; a pointer inside a message belongs
 * to the receiver, who frees it with command_release / event_release. */
#ifndef ENGINE_RUN_MESSAGES_H
#define ENGINE_RUN_MESSAGES_H

#include "engine/layout/lora.h"
#include "engine/base/message.h"
#include "engine/device/expert_edits.h"
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

/* A prompt before tokenization: a whole conversation, or text to be continued. */
struct dialogue {
    struct message *messages;
    size_t n_messages;
    bool raw;           /* the messages' texts are used verbatim, without template */
    bool continue_last; /* the last message is an assistant's, to be continued */
    bool whole;         /* no turn is dropped: ERR_CONTEXT where it does not fit */
    bool hermes;        /* calls of tools may come in Hermes' format, whatever the template's is */
    /* a JSON object whose members are variables of the template ("tools"), a reference; NULL:
     * none */
    struct json_t *given;
};

#define PROMPT_MARKS 4

/* The result of prompt_make (engine/run/prompt.h), made on the caller's thread. */
struct prompt {
    int *ids, n;
    bool goes_on;      /* the answer continues a text: the space before its first word counts */
    int dropped_turns; /* dropped by the overflow policy; the turn reports it */
    struct answer_parts parts; /* the parser's state at the start of the answer; zeroed: all of it
                                * is answer */
    uint64_t
        start_ns; /* when tokenizing began: the turn's clocks start there; 0: when the turn began */
    /* ascending start positions of its newest messages and of the answer, where other prompts may
     * diverge (checkpoints.h) */
    int marks[PROMPT_MARKS], n_marks;
    /* the messages, behind the n ids and in their memory: n_messages pairs of the position where
     * one starts, ascending, and its enum role; 0: not known. What comes after the last one's start
     * may be the beginning of the answer, which is a message too */
    int n_messages;
};

static inline const int *prompt_messages(const struct prompt *p)
{
    return p->ids + p->n;
}

/* An embedding of a prompt, from the hidden states after the final norm. */
enum embed_pooling {
    EMBED_NONE,
    EMBED_MEAN, /* their mean */
    EMBED_LAST, /* the last token's */
    EMBED_CLS   /* the first token's */
};

#define TURN_ASKED 2
#define TURN_ENDS 4

/* One turn: the engine reuses the KV of the longest prefix that the session shares with the prompt.
 */
struct turn {
    struct prompt prompt;
    struct sampling sampling;
    int max_tokens; /* -1: until it stops */
    bool ignore_eos;
    /* token events carry probabilities and candidates: a pass over the vocabulary each */
    bool probabilities;
    /* LOGPROBS with so many likely tokens precedes every TOKEN: a pass over the vocabulary each */
    bool logprobs;
    int top_logprobs;
    /* Also LOGPROBS of every prompt token but the first, before those; the prompt is computed
     * whole. */
    bool score_prompt;
    /* Not NONE: EVENT_EMBEDDING instead of an answer (max_tokens is 0); the prompt is computed
     * whole. */
    enum embed_pooling embed;
    /* LOGPROBS of these as the token after the prompt */
    int asked[TURN_ASKED], n_asked;
    /* Not 0: so many ns after its first token the answer ends with its line. */
    uint64_t most_ns;
    /* tokens that end the answer, besides the model's */
    int ends[TURN_ENDS], n_ends;
    char **stops; /* n_stops strings that end the answer; not output */
    size_t n_stops;
    /* grammar of the answer (not of the thoughts before it); a reference; NULL: none */
    struct grammar *grammar;
    char *begun; /* the beginning of such an answer where it is continued; NULL: none */
    /* true: sets the session's adapter strengths, one each, from here on; else they stay */
    bool adapters;
    float strengths[LORA_ADAPTERS];
    /* likewise, the edits of its routing: a reference, or NULL for none */
    bool edited;
    struct expert_edits *edits;
};

enum command_kind {
    COMMAND_TURN,     /* .turn */
    COMMAND_SAMPLING, /* .sampling: from the next token on */
    COMMAND_PLAN,     /* .plan: at the next safe point; takes ownership */
    /* .text: planner spec ("hot:600M"), resolved by the engine against its counts */
    COMMAND_PLACE,
    COMMAND_PACE,   /* .number: tokens a second, 0: off */
    COMMAND_AUDIT,  /* .number: one job in so many, 0: none */
    COMMAND_EXPERT, /* .expert: which tokens chose it; the reply is EVENT_REPORT */
    /* .number: 1: trace one token a second into the telemetry; 0: stop */
    COMMAND_TIMELINE,
    /* .call: runs between turns on the engine's thread; ends with one EVENT_REPORT, text NULL when
       it has none */
    COMMAND_CALL,
    COMMAND_CLEAR, /* forget KV and session counts */
    COMMAND_OPEN,  /* internal to client_open and client_close */
    COMMAND_CLOSE,
    COMMAND_QUIT,
};

struct engine;
struct error;

struct command {
    enum command_kind kind;
    enum plan_phase phase; /* of COMMAND_PLAN; COMMAND_PLACE has it in its text (planner.h) */
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
    EVENT_LOGPROBS,     /* .logprobs: of a token of the prompt, or of the next token */
    EVENT_TOKEN,        /* .token */
    EVENT_EMBEDDING,    /* .embedding: of the prompt; TURN_DONE follows */
    EVENT_TURN_DONE,    /* .done_turn */
    /* .text: name of the plan now in effect ("cpu, prompts gpu", telemetry_plan_names); sent after
     * each placement request, also a failed one. .wishes: how many COMMAND_PLAN and COMMAND_PLACE,
     * in the order sent, are decided by then; later ones are still pending */
    EVENT_PLAN,
    /* .text: one line for the user (turns dropped, device lost, fallback); a listener that takes it
     * sets it to NULL; else it goes to engine_config.log */
    EVENT_NOTICE,
    /* .text: progress of long work between turns; the next one replaces it */
    EVENT_PROGRESS,
    EVENT_REPORT,  /* .text: lines that a command requested */
    EVENT_ERROR,   /* .failure.code, .text; a turn in progress has ended */
    EVENT_STOPPED, /* the thread has ended */
};

/* A token, or text that was held back because it might have started a stop string or a marker. */
struct token_event {
    int id;                /* -1: no token, only text */
    enum answer_part part; /* the part of the answer that the text belongs to */
    /* if turn.probabilities: the model's own, softmax at temperature 1 over all tokens */
    float probability;
    /* likewise: of the draw, after temperature and cuts; greedy: 1; 0: not drawn (--spec-accept
     * took the drafted one) */
    float share;
    int candidates; /* likewise: left by the sampler's cuts; greedy: 1 */
    /* the model's own probability of all tokens that the grammar excluded here */
    float forbidden;
    /* bytes of text completed by this token; the rest follows in events with id -1 */
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
    int n;         /* number of likeliest tokens, best first */
    int ids[LOGPROBS_MOST];
    float logprobs[LOGPROBS_MOST];
};

struct turn_done_event {
    enum stop_reason reason;
    int stop; /* STOP_STRING: which of the turn's strings; else 0 */
    int prompt_tokens, cached_tokens, completion_tokens;
    /* prompt tokens that were in the session but recomputed: for another rotary table or because of
     * where its recurrent state ended */
    int recomputed_tokens;
    int stored_tokens;     /* of the cached ones, read from the prompt cache on disk */
    int dropped_turns;     /* dropped by the overflow policy */
    int drafted, accepted; /* draft tokens verified; those accepted */
    int changed;           /* draft tokens taken in place of drawn ones (--spec-accept) */
    /* tokens under a grammar, and the sum of the model's own probability of all tokens it excluded
     * there */
    int ruled_tokens;
    double forbidden;
    /* some of its rows were computed with other lossy settings than the engine was opened with
     * (engine_lossy) */
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
        struct {
            float *values; /* (n), not normalised; mem_*, owned: a listener that takes it sets it to
                            * NULL */
            int n;
        } embedding;
    };
    char *text; /* owned, or NULL */
};

/* frees messages and texts (mem_* memory), leaves zeros */
void dialogue_release(struct dialogue *d);
/* frees ids, stops and begun (all mem_* memory), releases the grammar, leaves zeros */
void turn_release(struct turn *t);
void command_release(struct command *c);
void event_release(struct event *e);
/* Its contents have another owner: forgets them. */
void event_taken(struct event *e);

#endif
