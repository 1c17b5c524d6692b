/* See lora.h. */
#include "app/serve/request/lora.h"

#include <math.h>
#include <string.h>

#define STRENGTH_MOST 1000.0

static const struct adapters *adapters_of(const struct server *s)
{
    return server_info(s)->adapters;
}

void lora_begin(struct server *s)
{
    const struct adapters *all = adapters_of(s);

    for (int i = 0; i < adapters_count(all); i++)
        s->strengths[i] = adapters_at(all, i)->strength;
}

/* {"id": N, "scale": S} */
static int read_one(const json_t *v, int n, float *strengths, struct refusal *r)
{
    const json_t *id = json_object_get(v, "id"), *scale = json_object_get(v, "scale");

    if (!json_is_object(v) || !json_is_integer(id) || !json_is_number(scale))
        return refuse(r, 400, "invalid_type", "lora",
                      "an entry of 'lora' must be {\"id\": a whole number, \"scale\": a number}");
    if (json_integer_value(id) < 0 || json_integer_value(id) >= n)
        return refuse(r, 400, "invalid_value", "lora",
                      "'lora' names adapter %lld; there are %d, numbered from 0",
                      (long long)json_integer_value(id), n);
    if (!(fabs(json_number_value(scale)) <= STRENGTH_MOST))
        return refuse(r, 400, "invalid_value", "lora", "a 'scale' of 'lora' is %g; at most %g is "
                                                       "possible",
                      json_number_value(scale), STRENGTH_MOST);
    strengths[json_integer_value(id)] = (float)json_number_value(scale);
    return 0;
}

int lora_read(const struct server *s, const json_t *list, float *strengths, struct refusal *r)
{
    int n = adapters_count(adapters_of(s)), rc = 0;

    memcpy(strengths, s->strengths, sizeof s->strengths);
    if (!list)
        return 0;
    if (!json_is_array(list))
        return refuse(r, 400, "invalid_type", "lora", "'lora' must be a list");
    memset(strengths, 0, sizeof s->strengths);
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++)
        rc = read_one(json_array_get(list, i), n, strengths, r);
    return rc;
}
