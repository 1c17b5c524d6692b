/* What the screen shows of a server: its sessions, who waits, the newest requests and the rates of
 * all answers together, as plain data. Filled by the server (app/serve/dispatch/server_status.c),
 * read by panels; a copy of the UI thread's own. */
#ifndef UI_SERVING_H
#define UI_SERVING_H

#include <stdbool.h>
#include <stdint.h>

#define UI_SESSIONS 64  /* the first ones are shown */
#define UI_WAITING 32   /* likewise of what waits */
#define UI_REQUESTS 128 /* the newest ones are kept */

enum ui_session_state {
    UI_SESSION_IDLE,
    UI_SESSION_READING, /* its prompt */
    UI_SESSION_ANSWERING,
    UI_SESSION_HELD /* its answer stands still: the client is behind with reading it */
};

struct ui_session {
    enum ui_session_state state;
    char who[48];  /* the client's address; idle: of its last one; "": none yet */
    char what[32]; /* the API that was asked */
    int held;      /* tokens whose state it has */
    /* of its answer; idle: of the last one */
    int prompt, cached; /* tokens of the prompt; those that were there already */
    int read;           /* tokens of the prompt that are there by now */
    int made;           /* tokens of the answer */
    double tok_s;       /* (made - 1) / time from the first to the newest; 0: fewer than two */
    double seconds;     /* since its request came; idle: 0 */
};

struct ui_waiting {
    char who[48], what[32];
    int prompt;
    double seconds;
};

/* A request that is over, or a line the program has to say (status 0: text alone). */
struct ui_request {
    char clock[12]; /* "14:03:22" */
    char who[48], what[32];
    int status;
    int prompt, cached, made;
    double first_s, seconds; /* to the first token, 0: there was none; in all */
    char text[160];          /* how it ended where that is not as usual: "client gone" */
};

struct ui_serving {
    char where[64];
    bool ready, draining;
    int n_sessions, running, waiting; /* choices that are answered and that wait */
    int context;                      /* tokens that a session may hold */
    struct ui_session sessions[UI_SESSIONS];
    struct ui_waiting queue[UI_WAITING];
    struct ui_request requests[UI_REQUESTS];
    uint64_t n_requests; /* ever; newest at (n - 1) % UI_REQUESTS */
    uint64_t completed, cancelled, failed;
    uint64_t drafted, accepted;                         /* tokens, of answers that are over */
    uint64_t prompt_tokens, cached_tokens, made_tokens; /* since the start */
    /* over the newest second: tokens of all answers, and of all prompts */
    double answers_tok_s, prompts_tok_s;
    double answers_a_pass; /* likewise: mean of the passes that made tokens; 0: none */
    /* to the first token, of the newest requests that had one; 0: none yet */
    double first_p50_s, first_p95_s;
};

#endif
