/* The requests of a load (load.h), from a file of lines. */
#include "app/bench/load.h"

#include "app/setup/test_text.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define REQUESTS_MOST 100000

static int no_memory(struct error *e)
{
    return error_set(e, ERR_MEMORY, "out of memory for the requests");
}

static int add_message(struct dialogue *d, enum role role, const char *text, struct error *e)
{
    if (!MEM_FIT(d->messages, d->n_messages + 1))
        return no_memory(e);
    d->messages[d->n_messages] = (struct message){.role = role, .text = mem_string(text)};
    return d->messages[d->n_messages++].text ? 0 : no_memory(e);
}

static int read_role(const char *word)
{
    static const char *const words[] = {"system", "user", "assistant"};

    for (int i = 0; word && i < 3; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    return -1;
}

static int read_messages(struct dialogue *d, const json_t *list, struct error *e)
{
    size_t i;
    json_t *m;
    int rc = 0;

    json_array_foreach(list, i, m)
    {
        int role = read_role(json_string_value(json_object_get(m, "role")));
        const char *text = json_string_value(json_object_get(m, "content"));

        if (role < 0 || !text)
            return error_set(e, ERR_INPUT,
                             "a message needs a role (system, user, assistant) and a "
                             "content that is text");
        if ((rc = add_message(d, (enum role)role, text, e)) < 0)
            return rc;
    }
    return 0;
}

static int read_object(struct load_request *r, const char *line, struct error *e)
{
    json_t *o = json_read(line, strlen(line), "request", e);
    const json_t *prompt = json_object_get(o, "prompt"), *list = json_object_get(o, "messages"),
                 *most = json_object_get(o, "max_tokens");
    int rc = o ? 0 : ERR_INPUT;

    if (rc == 0 && most &&
        (!json_is_integer(most) || json_integer_value(most) < 1 ||
         json_integer_value(most) > INT_MAX))
        rc = error_set(e, ERR_INPUT, "max_tokens must be a whole number above 0");
    if (rc == 0 && most)
        r->max_tokens = (int)json_integer_value(most);
    if (rc == 0 && json_is_string(prompt))
        rc = add_message(&r->said, ROLE_USER, json_string_value(prompt), e);
    else if (rc == 0 && json_array_size(list))
        rc = read_messages(&r->said, list, e);
    else if (rc == 0)
        rc = error_set(e, ERR_INPUT, "it needs a prompt or messages");
    json_decref(o);
    if (rc < 0 && e && rc != ERR_MEMORY)
        e->code = ERR_INPUT;
    return rc < 0 && rc != ERR_MEMORY ? ERR_INPUT : rc;
}

static int add_line(struct load_requests *all, const char *line, int max_tokens, struct error *e)
{
    struct load_request *more;

    if (all->n == REQUESTS_MOST)
        return error_set(e, ERR_INPUT, "more than %d requests", REQUESTS_MOST);
    if (!MEM_FIT(all->request, all->n + 1))
        return no_memory(e);
    more = all->request + all->n++;
    *more = (struct load_request){.max_tokens = max_tokens};
    return *line == '{' ? read_object(more, line, e) : add_message(&more->said, ROLE_USER, line, e);
}

int load_requests_read(struct load_requests *r, const char *path, int max_tokens, struct error *e)
{
    char read[4096], *text = NULL;
    size_t size, number = 0;
    int rc;

    *r = (struct load_requests){0};
    if ((rc = test_prompts_read(path, read, &text, &size, e)) < 0)
        return rc;
    for (char *line = text, *next; line && rc == 0; line = next) {
        size_t n;

        number++;
        if ((next = strchr(line, '\n')))
            *next++ = 0;
        n = strlen(line);
        if (n && line[n - 1] == '\r')
            line[n - 1] = 0;
        line += strspn(line, " \t");
        if (*line && *line != '#' && (rc = add_line(r, line, max_tokens, e)) < 0)
            error_prefix(e, "%s:%zu", read, number);
    }
    mem_free(text);
    if (rc == 0 && !r->n)
        return error_set(e, ERR_INPUT, "%s: no requests in it (one a line)", read);
    return rc;
}

void load_requests_release(struct load_requests *r)
{
    for (size_t i = 0; i < r->n; i++)
        dialogue_release(&r->request[i].said);
    mem_free(r->request);
    *r = (struct load_requests){0};
}
