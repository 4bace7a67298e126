import { expect, test } from "vitest"

import { isLoopback } from "./routes"

test.each(["localhost", "pellucid.localhost", "127.0.0.1", "127.8.0.1", "[::1]"])("%s is this computer alone", (host) => {
  expect(isLoopback(host)).toBe(true)
})

test.each(["pellucid.example", "192.168.1.5", "localhost.example", "[fe80::1]", "128.0.0.1", "127.0.0.1.example"])("%s is not", (host) => {
  expect(isLoopback(host)).toBe(false)
})
