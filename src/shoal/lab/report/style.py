"""The report's style sheet, light and dark; it fetches nothing."""

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--paper:#fbfbf9;--card:#fff;--ink:#1d2430;--soft:#5b6472;
--line:#e3e5e8;--stripe:#f4f5f6;--cold:#d5dae1;--warm:#f2a93b;--hot:#c9302c;
--event:#b3261e;--hue0:#2f6fd0;--hue1:#d1690f;--hue2:#1b8a62;--hue3:#9645b0;
--hue4:#bf3a5c;--hue5:#0f8aa3;--hue6:#7a7416;--hue7:#6a6f78}
@media(prefers-color-scheme:dark){:root{--paper:#14171c;--card:#1b2027;--ink:#e8eaee;
--soft:#9aa4b2;--line:#2c333d;--stripe:#20262e;--cold:#3a434f;--warm:#e59a2e;
--hot:#ff5d52;--event:#ff8a80;--hue0:#6ea3f5;--hue1:#f09a4a;--hue2:#4cc395;
--hue3:#c58be0;--hue4:#f07f9c;--hue5:#4fc3d9;--hue6:#c3bc4d;--hue7:#a3a9b3}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1060px;margin:0 auto;padding:36px 24px 80px}
h1{font-size:27px;margin:0 0 4px;letter-spacing:-.01em}
h2{font-size:18px;margin:40px 0 10px}h3{font-size:15px;margin:26px 0 6px}
p{margin:6px 0}.sub,.note{color:var(--soft)}.note{font-size:13px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;
padding:16px 18px;margin:12px 0;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:5px 12px;text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;padding-left:0;color:var(--soft);
font-weight:400}
thead th{border-bottom:1px solid var(--line);font-weight:600;color:var(--ink)}
tbody tr+tr td{border-top:1px solid var(--line)}td.best{font-weight:650}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:0 0 8px;font-size:13px}
.key{display:inline-flex;align-items:center;gap:6px}
.swatch{width:14px;height:4px;border-radius:2px;background:currentColor}
.box{height:11px;width:11px;border-radius:3px}
svg{display:block;width:100%;height:auto}
svg text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
fill:var(--soft)}
svg .label{font-size:12px;fill:var(--ink)}svg .mark{fill:var(--event)}
svg .name{fill:var(--ink);font-size:11px}
.grid{stroke:var(--line)}.axis{stroke:var(--soft);stroke-width:1}
.event{stroke:var(--event);stroke-width:1;stroke-dasharray:3 3}
.bound{stroke:var(--soft);stroke-width:1;stroke-dasharray:5 4}
.line{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}
.stripe{fill:var(--stripe)}
.bar.cut{opacity:.45;stroke:var(--event);stroke-width:.8}
.switch{fill:var(--card);stroke:var(--soft)}
.cable,.host{--tint:color-mix(in oklab,var(--hot) max(0%,calc(var(--heat)*2 - 100%)),
color-mix(in oklab,var(--warm) min(100%,calc(var(--heat)*2)),var(--cold)))}
.cable{stroke:var(--tint)}.host{fill:var(--tint)}
.scale{display:inline-block;width:120px;height:9px;border-radius:5px;
background:linear-gradient(90deg in oklab,var(--cold),var(--warm),var(--hot))}
.tabs{display:flex;flex-wrap:wrap;gap:6px;margin:6px 0 0}
.tabs button{font:inherit;font-size:14px;padding:5px 14px;border-radius:999px;
border:1px solid var(--line);background:var(--card);color:var(--ink);cursor:pointer}
.tabs button[aria-selected=true]{background:var(--ink);color:var(--paper);
border-color:var(--ink)}
footer{margin-top:44px;color:var(--soft);font-size:13px}
code{font:13px ui-monospace,SFMono-Regular,Menlo,monospace}
""" + "".join(
    f".hue{n}{{color:var(--hue{n})}}.fill{n}{{fill:var(--hue{n})}}" for n in range(8)
)

SCRIPT: Final = """
const tabs=[...document.querySelectorAll('.tabs button')];
const show=n=>{tabs.forEach((t,i)=>t.setAttribute('aria-selected',i===n));
document.querySelectorAll('.run').forEach((r,i)=>{r.hidden=i!==n})};
tabs.forEach((t,i)=>t.addEventListener('click',()=>show(i)));
"""
