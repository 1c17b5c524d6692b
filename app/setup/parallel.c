/* See parallel.h. */
#include "app/setup/parallel.h"

#include <stdlib.h>

/* The next number of a comma-separated list; 0: invalid. */
static int next_number(const char **at)
{
    char *end;
    long n = strtol(*at, &end, 10);
    bool number = end > *at && (*end == ',' || *end == 0) && n >= 1 && n <= PARALLEL_MOST;

    while (*end && *end != ',')
        end++;
    *at = *end ? end + 1 : end;
    return number ? (int)n : 0;
}

int parallel_numbers(const struct options *o, int *out, int max)
{
    int n = 0;

    for (size_t i = 0; i < o->parallel.n; i++)
        for (const char *at = o->parallel.items[i]; *at;) {
            int number = next_number(&at);

            if (number && n++ < max)
                out[n - 1] = number;
        }
    if (!n && max > 0)
        out[0] = 1;
    return n ? n : 1;
}

int parallel_count(const struct options *o)
{
    return parallel_numbers(o, NULL, 0);
}

int parallel_most(const struct options *o)
{
    int list[PARALLEL_MOST], n = parallel_numbers(o, list, PARALLEL_MOST), most = 1;

    for (int i = 0; i < n && i < PARALLEL_MOST; i++)
        most = list[i] > most ? list[i] : most;
    return most;
}

int parallel_sessions(const struct options *o)
{
    if (o->serve)
        return o->parallel.n ? parallel_most(o) : PARALLEL_SERVE;
    if (o->embed)
        return o->parallel.n ? parallel_most(o) : PARALLEL_EMBED;
    /* modes that compute several lines, or print the memory needed for that */
    return o->batch || o->bench || o->fit || o->replay ? parallel_most(o) : 1;
}

int parallel_check(const struct options *o, struct error *e)
{
    for (size_t i = 0; i < o->parallel.n; i++)
        for (const char *at = o->parallel.items[i]; *at;)
            if (!next_number(&at))
                return error_set(e, ERR_USAGE, "--parallel %s: numbers from 1 to %d, by commas",
                                 o->parallel.items[i], PARALLEL_MOST);
    return 0;
}
