/* What is told of the server to those who look at it (the dashboard on the terminal, a client's
 * panels), and what they ask of the engine: a copy of everything under one lock. The hub puts the
 * sessions and the engine's state in and takes the wishes out, the HTTP thread adds requests that
 * are over; whoever looks gets a copy. Nothing of what was said is in it. */
#ifndef APP_SERVE_BOARD_H
#define APP_SERVE_BOARD_H

#include "app/serve/hub_figures.h"
#include "ui/serving.h"

struct board;
struct slot;
struct task;

struct board *board_new(void);    /* NULL: no memory */
void board_free(struct board *b); /* accepts NULL */

/* Any thread. A request that is over, or (status 0) a line; the time of day is added. */
void board_request(struct board *b, const struct ui_request *r);
/* The hub's thread: slots and queue are its own. Takes a new look not more often than ten times a
 * second, unless at once. */
void board_sessions(struct board *b, const struct slot *slots, int n, const struct task *queue,
                    const struct hub_figures *f, bool at_once);
void board_first_token(struct board *b, double seconds);
void board_prompt_read(struct board *b, int tokens); /* so many more of any prompt */
/* The engine's newest state, not more often than ten times a second; NULL: there is none yet. */
void board_engine(struct board *b, const struct telemetry *t);
/* It is another one from now on, of which nothing is known yet. */
void board_forget_engine(struct board *b);
void board_loading(struct board *b, uint64_t done, uint64_t total);
/* The plan in force, after so many wishes of the engine's (struct event). */
void board_plan(struct board *b, const char *plan, uint64_t wishes);

/* A placement is wanted (its name is copied) or a token's timeline now and then; the hub takes it.
 * Any thread. Returns the wish's number; 0: no memory. */
uint64_t board_place(struct board *b, const char *plan);
void board_timeline(struct board *b, bool on);
/* The hub's thread. true: *plan (mem_* memory, NULL: none) or *timeline (-1: as it was) is new. */
bool board_take(struct board *b, char **plan, int *timeline);

/* Any thread. *out is a copy. */
void board_look(struct board *b, struct ui_serving *out);
struct board_state {
    uint64_t done, total; /* loading: bytes */
    uint64_t wishes;      /* decided, see struct event */
    char plan[64];        /* in force; "": not known yet */
};
void board_state(struct board *b, struct board_state *out);
/* Calls fn with the engine's newest state, which is the board's; nothing where there is none. fn is
 * quick and asks nothing of the board. */
void board_telemetry(struct board *b, void (*fn)(void *ctx, const struct telemetry *t), void *ctx);

#endif
