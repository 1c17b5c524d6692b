/* The types that a tool's JSON schema allows for an argument: for call syntaxes that write all
 * values as plain text. Pure; any thread. */
#ifndef ENGINE_TEXT_CALL_SCHEMA_H
#define ENGINE_TEXT_CALL_SCHEMA_H

#include <jansson.h>

enum call_type {
    CALL_STRING = 1,
    CALL_INTEGER = 2,
    CALL_NUMBER = 4,
    CALL_BOOLEAN = 8,
    CALL_OBJECT = 16,
    CALL_ARRAY = 32,
    CALL_NULL = 64
};

/* A set of enum call_type for the argument of this name (len bytes); 0: not given by the schema
 * (may be NULL). type, enum, const, anyOf, oneOf, allOf, $ref within the schema, nullable. */
unsigned call_schema_types(const json_t *parameters, const char *name, size_t len);
/* Whether it is one of them. Integers are numbers too. */
int call_schema_takes(unsigned types, const json_t *value);

#endif
