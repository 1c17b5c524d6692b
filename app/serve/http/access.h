/* Who may ask: keys, the Host a request names, and the Origin of a page in a browser. Immutable
 * once it is open; any thread. A page of any site can make a browser send requests to 127.0.0.1,
 * and by its DNS name too (rebinding); so a Host that is not ours and every foreign Origin are
 * refused, before a body is read. */
#ifndef APP_SERVE_HTTP_ACCESS_H
#define APP_SERVE_HTTP_ACCESS_H

#include "app/options/options.h"
#include "app/serve/common/refusal.h"

struct access;

/* Reads --api-key-file: a key a line, blank lines and those that begin with # left out. loopback:
 * only this machine can reach us. ERR_USAGE (also where others can and there is no key), ERR_IO,
 * ERR_MEMORY. */
int access_open(struct access **out, const struct options *o, bool loopback, struct error *e);
void access_close(struct access *a); /* accepts NULL */

/* What a request's headers say; NULL: not there. */
struct access_headers {
    const char *host, *origin, *authorization, *api_key;
};
/* Host and Origin. -1: refused. */
int access_check_browser(const struct access *a, const struct access_headers *h, struct refusal *r);
/* The key, compared in constant time. -1: refused. */
int access_check_key(const struct access *a, const struct access_headers *h, struct refusal *r);
/* The origin that an answer may name as allowed; NULL: none. */
const char *access_origin(const struct access *a, const char *origin);

#endif
