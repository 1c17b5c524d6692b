/* /moetop/state and /moetop/placement: a remote client (--connect) sees the dashboard's data, and
 * changes the placement. Request thread. */
#include "app/common/engine_state.h"
#include "app/serve/api/apis.h"
#include "app/serve/common/exchange.h"
#include "app/serve/common/server.h"
#include "app/serve/dispatch/dispatcher.h"
#include "app/serve/dispatch/server_status.h"
#include "app/serve/request/request_fields.h"

#include "engine/file/dtype.h"
#include "engine/model/model.h"
#include "engine/placement/planner.h"

#include <string.h>

static void make_state(void *ctx, const struct telemetry *t)
{
    *(json_t **)ctx = engine_state_json(t);
}

/* Adds to a device's figures its name, and whether it is this CPU under another name. */
static void name_devices(json_t *devices, const struct engine_info *info)
{
    json_t *each;
    size_t i;

    json_array_foreach(devices, i, each)
    {
        json_object_set_new(each, "name", json_string(info->devices[i].name));
        json_object_set_new(each, "is_cpu_type", json_boolean(info->devices[i].is_cpu_type));
    }
}

void api_state(struct exchange *x)
{
    const struct server *s = x->server;
    const struct engine_info *info = server_info(s);
    struct status_snapshot state;
    struct refusal why;
    json_t *o = NULL;

    if (server_ready(s, &why) == 0) {
        server_status_telemetry(s->status, make_state, &o);
        if (!o)
            refuse(&why, 503, "loading", NULL, "nothing is known of the engine yet");
    }
    if (!o) {
        reply_refusal(x, &why);
        return;
    }
    status_snapshot(s->status, &state);
    name_devices(json_object_get(o, "devices"), info);
    json_object_set_new(o, "model", json_string(s->model_id));
    json_object_set_new(o, "type", json_string(dtype_info(info->model->type)->word));
    json_object_set_new(o, "wishes", json_integer((json_int_t)state.wishes));
    reply_json(x, 200, o);
}

static int read_plan(const json_t *body, struct refusal *r)
{
    const json_t *plan = field_get(body, "plan");
    struct planner_spec spec;
    enum plan_phase phase;
    struct error e = {0};

    if (!plan)
        return refuse(r, 400, "missing_required_parameter", "plan", "'plan' is missing");
    if (!json_is_string(plan))
        return refuse(r, 400, "invalid_type", "plan", "'plan' must be a string");
    if (planner_parse_request(&spec, &phase, json_string_value(plan), &e) < 0)
        return refuse(r, 400, "invalid_value", "plan", "'plan': %s", e.text);
    return 0;
}

void api_placement(struct exchange *x)
{
    const struct server *s = x->server;
    struct refusal why = {0};
    const char *plan;
    uint64_t wish;
    json_t *body = server_ready(s, &why) == 0 ? request_json(x, &why) : NULL;

    if (!body || read_plan(body, &why) < 0) {
        reply_refusal(x, &why);
    } else if (!(wish = server_status_place(s->status, plan = json_string_value(
                                                           json_object_get(body, "plan"))))) {
        refuse(&why, 503, "out_of_memory", NULL, "out of memory for the placement");
        reply_refusal(x, &why);
    } else {
        dispatcher_wake(s->dispatcher);
        server_say(s, "%s asks for the placement %.60s", x->peer, plan);
        reply_json(x, 200, json_pack("{s:s, s:I}", "plan", plan, "wish", (json_int_t)wish));
    }
    json_decref(body);
}
