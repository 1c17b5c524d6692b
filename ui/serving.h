/* A server's state for the screen: its sessions, waiting requests, the newest requests and the
 * rates of all answers together, as plain data. Filled by the server
 * (app/serve/dispatch/server_status.c), read by panels; a copy owned by the UI thread. */
#ifndef UI_SERVING_H
#define UI_SERVING_H

#include <stdbool.h>
#include <stdint.h>

#define UI_SESSIONS 64  /* the first ones are shown */
#define UI_WAITING 32   /* likewise of waiting requests */
#define UI_REQUESTS 128 /* the newest ones are kept */

enum ui_session_state {
    UI_SESSION_IDLE,
    UI_SESSION_READING, /* prefill */
    UI_SESSION_ANSWERING,
    UI_SESSION_HELD /* its answer is paused: the client reads too slowly */
};

struct ui_session {
    enum ui_session_state state;
    char who[48];  /* the client's address; idle: of its last one; "": none yet */
    char what[32]; /* the requested API */
    int held;      /* tokens whose state it holds */
    /* of its answer; idle: of the last one */
    int prompt, cached; /* tokens of the prompt; of these cached */
    int read;           /* tokens of the prompt available by now */
    int made;           /* tokens of the answer */
    double tok_s;       /* (made - 1) / time from the first to the newest; 0: fewer than two */
    double seconds;     /* since its request arrived; idle: 0 */
};

struct ui_waiting {
    char who[48], what[32];
    int prompt;
    double seconds;
};

/* A finished request, or a message of the program (status 0: text only). */
struct ui_request {
    char clock[12]; /* "14:03:22" */
    char who[48], what[32];
    int status;
    int prompt, cached, made;
    double first_s, seconds; /* to the first token, 0: there was none; total */
    char text[160];          /* how it ended if unusual: "client gone" */
};

struct ui_serving {
    char where[64];
    bool ready, draining;
    bool unloaded;                    /* there is no model until the next request */
    int n_sessions, running, waiting; /* choices being answered and waiting */
    int context;                      /* most tokens of a session */
    struct ui_session sessions[UI_SESSIONS];
    struct ui_waiting queue[UI_WAITING];
    struct ui_request requests[UI_REQUESTS];
    uint64_t n_requests; /* ever; newest at (n - 1) % UI_REQUESTS */
    uint64_t completed, cancelled, failed;
    uint64_t drafted, accepted;                         /* tokens, of finished answers */
    uint64_t prompt_tokens, cached_tokens, made_tokens; /* since the start */
    /* over the last second: tokens of all answers, and of all prompts */
    double answers_tok_s, prompts_tok_s;
    double answers_a_pass; /* likewise: mean over decode passes; 0: none */
    /* to the first token, of the newest requests that had one; 0: none yet */
    double first_p50_s, first_p95_s;
};

#endif
