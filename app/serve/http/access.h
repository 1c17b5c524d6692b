/* Access control: keys, the Host of a request, and the Origin of a web page. Immutable once it is
 * open; any thread. A page of any site can make a browser send requests to 127.0.0.1, and by its
 * own DNS name too (rebinding); so an unknown Host and every foreign Origin are refused, before a
 * body is read. */
#ifndef APP_SERVE_HTTP_ACCESS_H
#define APP_SERVE_HTTP_ACCESS_H

#include "app/options/options.h"
#include "app/serve/common/refusal.h"

struct access;

/* Reads --api-key-file: a key per line, blank lines and those that begin with # ignored. loopback:
 * only this machine can connect. ERR_USAGE (also if others can and there is no key), ERR_IO,
 * ERR_MEMORY. */
int access_open(struct access **out, const struct options *o, bool loopback, struct error *e);
void access_close(struct access *a); /* accepts NULL */

/* Headers of a request; NULL: missing. */
struct access_headers {
    const char *host, *origin, *authorization, *api_key;
};
/* Checks Host and Origin. -1: refused. */
int access_check_browser(const struct access *a, const struct access_headers *h, struct refusal *r);
/* Checks the key, in constant time. -1: refused. */
int access_check_key(const struct access *a, const struct access_headers *h, struct refusal *r);
/* The origin for Access-Control-Allow-Origin; NULL: none. */
const char *access_origin(const struct access *a, const char *origin);

#endif
