/* See functions.h. */
#include "app/serve/request/functions.h"

#include <stdio.h>
#include <string.h>

static int read_list(struct job *j, const json_t *list, struct refusal *r)
{
    json_t *tools, *f;
    size_t i;

    if (field_get(j->body, "tools"))
        return refuse(
            r, 400, "invalid_value", "functions",
            "'functions' and 'tools' exclude each other: 'functions' is the earlier form");
    if (!json_is_array(list))
        return refuse(r, 400, "invalid_type", "functions", "'functions' must be a list");
    tools = json_array();
    json_array_foreach(list, i, f)
    {
        if (!json_is_string(json_object_get(f, "name")))
            refuse(r, 400, "invalid_type", "functions",
                   "'functions[%zu]' must be an object with a 'name'", i);
        json_array_append_new(tools, json_pack("{s:s, s:O}", "type", "function", "function", f));
    }
    json_object_set_new(j->body, "tools", tools);
    json_object_set_new(j->body, "parallel_tool_calls", json_false());
    j->wish.functions = true;
    return r->status ? -1 : 0;
}

/* "auto", "none", or the name of one. */
static int read_choice(struct job *j, json_t *choice, struct refusal *r)
{
    const char *word = json_string_value(choice);
    json_t *name = json_object_get(choice, "name");

    if (!j->wish.functions)
        return refuse(r, 400, "invalid_value", "function_call",
                      "'function_call' needs 'functions'; with 'tools' it is 'tool_choice'");
    if (word ? strcmp(word, "auto") != 0 && strcmp(word, "none") != 0 : !json_is_string(name))
        return refuse(r, 400, "invalid_value", "function_call",
                      "'function_call' must be auto, none or an object with the 'name' of one of "
                      "'functions'");
    if (word)
        json_object_set(j->body, "tool_choice", choice);
    else
        json_object_set_new(j->body, "tool_choice",
                            json_pack("{s:s, s:{s:O}}", "type", "function", "function", "name",
                                      name));
    return 0;
}

/* Calls get ids by their number, results that of the newest call. */
static void read_messages(json_t *list)
{
    json_t *m;
    size_t i, calls = 0;
    char id[32];

    json_array_foreach(list, i, m)
    {
        json_t *call = json_object_get(m, "function_call");
        const char *role = json_string_value(json_object_get(m, "role"));

        if (json_is_object(call) && !field_get(m, "tool_calls")) {
            snprintf(id, sizeof id, "call_%zu", ++calls);
            json_object_set_new(m, "tool_calls",
                                json_pack("[{s:s, s:s, s:O}]", "id", id, "type", "function",
                                          "function", call));
        }
        if (calls && role && strcmp(role, "function") == 0 && !field_get(m, "tool_call_id")) {
            snprintf(id, sizeof id, "call_%zu", calls);
            json_object_set_new(m, "role", json_string("tool"));
            json_object_set_new(m, "tool_call_id", json_string(id));
        }
    }
}

int functions_read(struct job *j, struct refusal *r)
{
    json_t *list = json_object_get(j->body, "functions"),
           *choice = json_object_get(j->body, "function_call");

    if ((list && !json_is_null(list) && read_list(j, list, r) < 0) ||
        (choice && !json_is_null(choice) && read_choice(j, choice, r) < 0))
        return -1;
    read_messages(json_object_get(j->body, "messages"));
    return 0;
}
