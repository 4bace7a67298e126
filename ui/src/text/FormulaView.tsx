// A formula: MathML once the library is loaded; the TeX source until then, and if it is invalid.
import { memo, useMemo } from "react"

import { lazyModule } from "./lazyModule"
import { LIMITS } from "./limits"
import { visible } from "./visible"

export const useFormulas = lazyModule(() => import("./formula"))

export const FormulaView = memo(function FormulaView({ tex, display }: { tex: string; display: boolean }) {
  const formulas = useFormulas(tex.length <= LIMITS.formula)
  const drawn = useMemo(() => formulas?.formula(tex, display) ?? null, [formulas, tex, display])
  const shown = drawn ?? <code className="formula__tex">{visible(tex)}</code>
  if (!display) return <span className="formula" dir="ltr">{shown}</span>
  return <span className="formula formula--display" dir="ltr">{shown}</span>
})
