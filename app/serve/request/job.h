/* A request that the engine answers, and a task for every choice, each of which occupies a session
 * while it is answered. Made by a request thread, owned by the dispatcher once it is submitted. */
#ifndef APP_SERVE_REQUEST_JOB_H
#define APP_SERVE_REQUEST_JOB_H

#include "app/serve/common/exchange.h"
#include "app/serve/common/server.h"
#include "app/serve/request/fields.h"
#include "engine/text/call_stream.h"
#include "engine/text/tokenizer.h"

struct dialect;
struct job;
struct slot;

/* A choice. */
struct task {
    struct job *job;
    int index;             /* among the choices */
    struct turn turn;      /* the engine's once it has begun */
    int *prompt, n_prompt; /* a copy of its ids if `echo` repeats them, or NULL */
    struct task *next;     /* in the queue */
    struct slot *slot;     /* its session; NULL: waits, or is over */
    bool over;
    bool goes_on;                        /* the answer continues in the middle of a text */
    struct strbuf text, reasoning, call; /* so far; call: text of tool calls, not parsed yet */
    struct strbuf held; /* start of the answer while it may be a call without a marker */
    bool answers;       /* it is not a call: text is streamed as it arrives */
    /* streams only: calls read from `call` or `held`; those sent, in OpenAI's form, NULL: none; of
     * the newest, as long as it is open, the arguments sent */
    struct call_stream calls;
    json_t *sent_calls;
    struct strbuf arguments;
    bool call_cut; /* the last call is incomplete */
    /* arrays: of tokens whose text is in `text`, and since the newest piece */
    json_t *logprobs, *fresh;
    struct logprobs_event newest; /* of the next token */
    bool has_newest;
    int scored;    /* tokens of the prompt reported so far */
    bool echoed;   /* the prompt was sent as an echo */
    size_t offset; /* total characters of the tokens reported so far */
    int reasoning_tokens;
    float asked[TURN_ASKED]; /* logarithms of the probabilities of turn.asked, so many by now */
    int n_asked;
    float *embedding; /* (n_embedding), mem_*; NULL: none */
    int n_embedding;
    json_t *tool_calls; /* in OpenAI's form; NULL: none */
    struct turn_done_event done;
    const char *finish; /* OpenAI's word: "stop", "length", "tool_calls" */
};

/* The plain fields of all APIs; each API's table selects some. */
struct wish {
    bool stream, include_usage, logprobs, echo, ignore_eos;
    int64_t n, max_tokens, top_logprobs, dimensions, top_n, most_ms;
    enum embed_pooling embed; /* not NONE: the answer is an embedding */
    bool asks;                /* the answer is the probabilities of turn.asked */
    bool tools;               /* tool calls are parsed out of the text */
    bool functions;           /* calls are sent in OpenAI's earlier form */
    bool call;                /* the answer is only such a call, constrained by j->grammar */
    struct sampling sampling; /* of the first choice */
    float strengths[LORA_ADAPTERS];
};

struct job {
    struct server *server;
    struct exchange *x; /* a reference of its own */
    const struct dialect *dialect;
    struct job *next; /* in the queue to the dispatcher; then in the list of running jobs */
    json_t *body;     /* the request */
    int other_model;  /* of the registry, to be loaded for it; -1: what is loaded is its model */
    char id[48];
    int64_t created;
    struct wish wish;
    struct expert_edits *edits; /* of its routing: a reference; NULL: none */
    const char *format_name;    /* its API's name for "response_format" */
    struct grammar *grammar;    /* constraint of the answers, a reference; NULL: none */
    char *opening;              /* text with which such an answer starts; NULL: none */
    char **stops;               /* until the turns have copies */
    size_t n_stops;
    struct task *tasks;
    int n_tasks, n_prompts, left; /* tasks; prompts of them; tasks not over yet */
    bool begun, failed, cancelled;
    bool held; /* paused: its client reads too slowly */
    uint64_t submitted_ns, first_ns, last_put_ns;
    int sequence, part, items; /* counters of the dialects for their events and parts */
    struct strbuf line;        /* an event under construction */
};

/* How an API formats answers. Streams: begin, then for each task task_begin, pieces, task_end, then
 * end; each appends whole events to job->line. dispatcher thread. */
struct dialect {
    bool ndjson; /* streams are lines of JSON (job_line), not events */
    void (*begin)(struct job *j);
    void (*task_begin)(struct job *j, struct task *t);
    /* n may be 0 if only token probabilities are left to report */
    void (*piece)(struct job *j, struct task *t, enum answer_part part, const char *text, size_t n);
    /* Call i begins (its arguments are ""), goes on, is complete (t->call_cut: or never will be).
     * call_begin NULL: calls are not sent in pieces, task_end sends t->tool_calls. */
    void (*call_begin)(struct job *j, struct task *t, const json_t *call, size_t i);
    void (*call_piece)(struct job *j, struct task *t, size_t i, const char *json, size_t n);
    void (*call_end)(struct job *j, struct task *t, const json_t *call, size_t i);
    void (*task_end)(struct job *j, struct task *t);
    void (*end)(struct job *j);
    /* an event that ends a stream */
    void (*failure)(struct job *j, const struct refusal *r);
    json_t *(*whole)(struct job *j); /* NULL: no memory */
    /* in place of whole, for answers too long for json_t: JSON, appended to out */
    void (*whole_text)(struct job *j, struct strbuf *out);
    /* formats a token's probabilities; NULL: not supported */
    json_t *(*entry)(const struct tokenizer *t, const struct logprobs_event *p, bool first);
};

/* Any thread that owns the job. Takes a reference of x. NULL: no memory. prefix: of its id. */
struct job *job_new(struct exchange *x, const struct dialect *dialect, const char *prefix);
void job_free(struct job *j); /* accepts NULL */
/* n_prompts * wish.n tasks; the k-th of prompt i has number i * n + k. The prompt's ids and the
 * stops are copied into each, the seed of choice k is seed + k. prompts are taken, also on failure.
 */
int job_tasks(struct job *j, struct prompt *prompts, int n_prompts, struct refusal *r);

/* data: {...}, with event: name before it where name is not NULL. Takes o. */
void job_event(struct job *j, const char *name, json_t *o);
/* A line of JSON. Takes o. */
void job_line(struct job *j, json_t *o);
/* Sums over the tasks: a prompt counts once. */
struct usage {
    int prompt, cached, stored, completion,
        reasoning; /* stored: of the cached ones, from the disk */
};
struct usage job_usage(const struct job *j);

#endif
