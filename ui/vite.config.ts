// Build configuration: output into the Python package, hashed names, nothing inline (the page's content security policy
// forbids it).
import react from "@vitejs/plugin-react"
import { defineConfig } from "vitest/config"

const gateway = process.env.PELLUCID_URL ?? "http://127.0.0.1:8080"

export default defineConfig({
  plugins: [react()],
  build: {
    outDir: "../src/pellucid/web",
    emptyOutDir: true,
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 1000,
  },
  server: { proxy: { "/api": { target: gateway, changeOrigin: false } } },
  test: { environment: "happy-dom", include: ["src/**/*.test.{ts,tsx}"], testTimeout: 20_000 },
})
