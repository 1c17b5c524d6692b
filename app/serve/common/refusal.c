/* See refusal.h. */
#include "app/serve/common/refusal.h"

#include "engine/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int refuse(struct refusal *r, int status, const char *code, const char *param, const char *format,
           ...)
{
    char text[sizeof r->text];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    *r = (struct refusal){.status = status, .code = code};
    utf8_escape(r->text, sizeof r->text, text, strlen(text), 0);
    if (param)
        utf8_escape(r->param, sizeof r->param, param, strlen(param), 0);
    if (status == 429 || status == 503)
        r->retry_after = 1;
    return -1;
}

int refuse_error(struct refusal *r, const struct error *e)
{
    switch (e->code) {
    case ERR_CONTEXT:
        return refuse(r, 400, "context_length_exceeded", "messages",
                      "this model's maximum context length is exceeded: %s", e->text);
    case ERR_INPUT:
    case ERR_USAGE: return refuse(r, 400, "invalid_value", NULL, "%s", e->text);
    case ERR_MEMORY: return refuse(r, 503, "out_of_memory", NULL, "%s", e->text);
    case ERR_CANCELLED:
        return refuse(r, 503, "shutting_down", NULL, "the answer was ended: the server stops");
    default: return refuse(r, 500, error_word(e->code), NULL, "%s", e->text);
    }
}

/* The error classes of OpenAI, which are also Anthropic's except for one name. */
static const char *type_of(int status, enum api_form form)
{
    bool anthropic = form == API_ANTHROPIC;

    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return anthropic ? "not_found_error" : "invalid_request_error";
    case 413: return anthropic ? "request_too_large" : "invalid_request_error";
    case 429: return "rate_limit_error";
    case 503: return anthropic ? "overloaded_error" : "service_unavailable_error";
    default:
        return status < 500 ? "invalid_request_error" : anthropic ? "api_error" : "server_error";
    }
}

json_t *refusal_json(const struct refusal *r, enum api_form form)
{
    const char *type = type_of(r->status, form);

    if (form == API_OLLAMA)
        return json_pack("{s:s}", "error", r->text);
    if (form == API_ANTHROPIC)
        return json_pack("{s:s, s:{s:s, s:s}}", "type", "error", "error", "type", type, "message",
                         r->text);
    return json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message", r->text, "type", type,
                     "param", r->param[0] ? r->param : NULL, "code", r->code);
}
