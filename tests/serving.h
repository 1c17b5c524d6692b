/* The server as its clients meet it, for the suites of its APIs: the real program on a free port,
 * and requests over sockets of our own. One server at a time. Everything fails the test if it
 * fails. */
#ifndef TESTS_SERVING_H
#define TESTS_SERVING_H

#include <jansson.h>
#include <limits.h>
#include <stddef.h>
#include <sys/types.h>

#define MODEL "tiny-storyteller-Q8_0"
#define ASK "{\"model\": \"" MODEL "\", \"messages\": [{\"role\": \"user\", \"content\": "
#define CHAT "/v1/chat/completions"
#define FOX ASK "\"Tell me a story about a fox.\"}]"
/* A tool in OpenAI's form, as a member of a request. */
#define FIND                                                                                   \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"find\", \"parameters\": " \
    "{\"type\": \"object\", \"properties\": {\"who\": {\"type\": \"string\"}, \"n\": "         \
    "{\"type\": \"integer\"}}}}}]"

extern char serving_binary[PATH_MAX + 32]; /* of the program */
extern const char *serving_program;        /* its name in the build; "moetop" */
extern pid_t serving_pid;                  /* 0: none */
extern int serving_port;
extern void (*serving_prepare)(void); /* called in the child before it becomes the server */
/* A chat template that knows tools in the format of Hermes. */
extern const char serving_tools[];

void serving_find_binary(void); /* sets serving_binary */
/* Starts the bundled model with these options (until NULL) besides; it is ready when this returns.
 */
void serving_start(const char *const *more);
void serving_start_with_template(const char *text);
void serving_plain_server(void); /* fixtures: start, and end with exit status 0 */
void serving_end_well(void);
int serving_end(void); /* its exit status */
char *serving_log_text(void);
char *serving_wait_for_log(const char *what); /* where it stands */

struct reply {
    int status;
    char *head, *body; /* malloc'd together, by head; body: chunks joined */
    size_t n;
};

int serving_dial(void); /* a connected socket */
void serving_say(int fd, const char *text, size_t n);
char *serving_hear(int fd, size_t *n); /* to its end; malloc'd */
struct reply serving_read_reply(int fd);
/* headers: lines with their ends; NULL: what a client sends. */
struct reply serving_ask(const char *method, const char *path, const char *headers,
                         const char *body);
json_t *serving_read_json(const struct reply *r, int status);
json_t *serving_post(const char *path, const char *body, int status);
json_t *serving_post_json(const char *path, const json_t *body, int status);

/* A member of the first choice of a chat's answer, or a member of that. */
const char *serving_text_at(json_t *o, const char *first, const char *second);
/* The texts of a stream's deltas, joined; *events: how many there were. */
char *serving_stream_text(const struct reply *r, int *events);
/* The calls of a stream's deltas, as "NAME ARGUMENTS\n" each; *finish: how it ended. */
char *serving_stream_calls(const struct reply *r, char finish[16]);
/* A chat's request with FIND whose answer is this text, because a grammar demands it. */
json_t *serving_made_to_say(const char *text);

#endif
