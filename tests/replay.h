/* A server of sockets that replays what other servers sent (tests/servers), and can break off, fall
 * silent or be gone; and a chat with it (app/connect/remote.h) whose events are collected. One of
 * each at a time. Everything fails the test if it fails. */
#ifndef TESTS_REPLAY_H
#define TESTS_REPLAY_H

#include "app/connect/remote.h"
#include "engine/base/strbuf.h"

#include <check.h>
#include <stdatomic.h>

/* Of a stream; those in the middle cut its second half away. */
enum replay_fault {
    REPLAY_WELL,
    REPLAY_RESET,      /* the connection is reset */
    REPLAY_END,        /* it ends between two events */
    REPLAY_HALF_EVENT, /* within one */
    REPLAY_SILENCE,    /* nothing comes for six seconds */
    REPLAY_NO_LAST_LINE
};

/* What the server does; a test sets it. */
struct replay {
    const char *folder; /* of tests/servers */
    /* the answer of /metrics where they are at /metrics/; NULL: they are at /metrics */
    const char *slashed;
    enum replay_fault fault;
    atomic_int refusals; /* so many requests get `refusal` first */
    const char *refusal; /* status line, headers and body */
    const char *models;  /* in place of the recorded list */
    atomic_int asked;    /* requests for an answer so far */
    atomic_int figures;  /* readings of /metrics so far: from the second on, the later ones */
    char said[1 << 16];  /* the newest request's body */
};
extern struct replay replay;

void replay_set_up(void); /* fixtures: vLLM's recordings, on a free port */
void replay_tear_down(void);
void replay_start(void); /* again, on the same port */
void replay_end(void);   /* nobody listens there then */
/* A recorded file, "" if there is none; malloc'd, with its length. */
char *replay_recorded(const char *name, size_t *n);

/* The chat. */
extern struct remote *replay_chat;
extern struct strbuf replay_text, replay_thought; /* of the newest answer */
extern struct strbuf replay_notices;       /* NOTICEs and ERRORs since it was asked, a line each */
extern struct turn_done_event replay_done; /* the newest TURN_DONE */
extern int replay_error;                   /* code of the newest ERROR; 0: none */

void replay_connect(const char *model); /* NULL: the only one */
void replay_disconnect(void);
/* Asks; `model` of the request is "x". */
void replay_ask(void);
/* Until an event of that kind whose text has these words (NULL: any). */
void replay_await(enum event_kind kind, const char *words);

#define REPLAY_SAID(words)                                                            \
    ck_assert_msg(strstr(strbuf_text(&replay_notices), words) != NULL, "it said: %s", \
                  strbuf_text(&replay_notices))

#endif
