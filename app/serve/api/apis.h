/* The functions of the route table, one file per group. */
#ifndef APP_SERVE_API_APIS_H
#define APP_SERVE_API_APIS_H

struct exchange;

void api_health(struct exchange *x);
void api_models(struct exchange *x);
void api_model(struct exchange *x);
void api_chat(struct exchange *x);
void api_completions(struct exchange *x);
void api_apply_template(struct exchange *x);
void api_responses(struct exchange *x);
void api_response_get(struct exchange *x);
void api_response_post(struct exchange *x);
void api_response_delete(struct exchange *x);
void api_messages(struct exchange *x);
void api_count_tokens(struct exchange *x);
void api_embedding(struct exchange *x);
void api_embeddings(struct exchange *x);
void api_ollama_embed(struct exchange *x);
void api_ollama_embeddings(struct exchange *x);
void api_root(struct exchange *x);
void api_ollama_chat(struct exchange *x);
void api_ollama_generate(struct exchange *x);
void api_ollama_tags(struct exchange *x);
void api_ollama_ps(struct exchange *x);
void api_ollama_show(struct exchange *x);
void api_ollama_version(struct exchange *x);
void api_ollama_pull(struct exchange *x);
void api_ollama_refused(struct exchange *x);
void api_tokenize(struct exchange *x);
void api_detokenize(struct exchange *x);
void api_lora_list(struct exchange *x);
void api_lora_set(struct exchange *x);
void api_props(struct exchange *x);
void api_slots(struct exchange *x);
void api_completion(struct exchange *x);
void api_infill(struct exchange *x);
void api_rerank(struct exchange *x);
void api_state(struct exchange *x);
void api_placement(struct exchange *x);
void api_metrics(struct exchange *x);

#endif
