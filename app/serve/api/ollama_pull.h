/* The downloads of /api/pull. */
#ifndef APP_SERVE_API_OLLAMA_PULL_H
#define APP_SERVE_API_OLLAMA_PULL_H

/* Waits for those that run, which end as soon as the server is draining. Main thread. */
void ollama_pulls_end(void);

#endif
