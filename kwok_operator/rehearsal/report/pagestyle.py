"""The CSS of report.html: for narrow and wide screens, light and dark mode, and paper."""

from typing import Final

STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1f2328;--soft:#59636e;--line:#d1d9e0;--card:#f6f8fa;
--good:#1a7f37;--bad:#cf222e;--pick:#ffe08a80}
@media(prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--soft:#9198a1;--line:#30363d;
--card:#161b22;--good:#3fb950;--bad:#f85149;--pick:#bb800966}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.45 system-ui,sans-serif}
header,main{max-width:1080px;margin:0 auto;padding:0 16px}
header{padding-top:20px;padding-bottom:4px;border-bottom:4px solid var(--good)}
header.failed{border-color:var(--bad)}
header.open{border-color:var(--soft)}
h1{font-size:24px;margin:0;overflow-wrap:anywhere}
h1 b,.held{color:var(--good)}
.failed h1 b,.missed,.broken{color:var(--bad)}
.held,.missed,.broken{font-weight:600}
h2{font-size:17px;margin:28px 0 8px}
p{margin:6px 0}
header p,.small,dt,figcaption,th{color:var(--soft)}
header p{overflow-wrap:anywhere}
td{overflow-wrap:break-word}
.small{font-size:13px}
.glance{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:8px;margin:0}
.glance div{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:6px 10px}
dt{font-size:12px}
dd{margin:0;font-size:18px;font-variant-numeric:tabular-nums}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:12px}
figure{margin:0;border:1px solid var(--line);border-radius:6px;padding:8px 8px 4px;min-width:0}
figcaption{font-size:13px;font-weight:600}
figure>svg{width:100%;height:auto;display:block}
svg text{fill:var(--soft);font-size:11px}
.grid{stroke:var(--line);fill:none}
.mark{stroke:var(--soft);stroke-dasharray:3 3;fill:none}
.line{fill:none;stroke-width:2}
.under{fill:var(--bg)}
.over{stroke-dasharray:5 3;stroke-width:1.5;stroke:var(--fg)}
.thick{stroke-width:5;opacity:.4}
.faint{opacity:.5}
.fainter{opacity:.22}
.failing{opacity:.7}
.up{fill:var(--good)}
.down{fill:var(--bad)}
.back{fill:var(--soft)}
.failed{fill:none;stroke:var(--bad)}
.racks path{fill:none;stroke:#3b82f6}
.racks .r0{stroke-opacity:.12}
.racks .r1{stroke-opacity:.35}
.racks .r2{stroke-opacity:.6}
.racks .hurt{stroke:var(--bad)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 14px;margin:2px 0 4px;padding:0;
font-size:12px}
.legend svg{width:10px;height:10px;margin-right:5px}
.wide{overflow-x:auto;margin:0 0 10px}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
table{border-collapse:collapse;font-size:13px;width:100%}
th,td{text-align:left;vertical-align:top;padding:4px 10px 4px 0;border-bottom:1px solid var(--line)}
th{font-weight:500;white-space:nowrap}
td{min-width:44px;max-width:420px;font-variant-numeric:tabular-nums}
td:nth-child(-n+2){min-width:70px}
.ends-long td:last-child{min-width:300px}
summary{cursor:pointer}
.answers{font-size:13px;overflow-wrap:anywhere;margin-bottom:10px}
.answers p{margin:2px 0}
.answers .in0{font-weight:600;margin-top:8px}
.answers .in1{padding-left:16px}
.answers .in3{padding-left:48px;color:var(--soft)}
.chain{margin:4px 0;padding-left:16px}
.chain b{font-weight:500;color:var(--soft)}
[tabindex]:focus-visible,button:focus-visible,input:focus-visible{outline:2px solid #3b82f6;
outline-offset:1px}
.live figure>svg,.live figure>.legend{display:none}
.live tr[data-is]{cursor:pointer}
.live tr[data-is]:hover{background:var(--card)}
tr.picked,.live tr.picked:hover{background:var(--pick)}
.uplot{font:inherit;width:100%}
.uplot .u-legend{font-size:12px;text-align:left;margin:0}
.uplot .u-legend th{overflow-wrap:anywhere;white-space:normal}
.uplot .u-legend td,.uplot .u-legend th{min-width:0;padding:0 4px 0 0;border:0;display:inline}
.uplot .u-legend td::before{content:none}
.uplot .u-legend tr{margin-right:10px;display:inline-block;max-width:100%;border:0;padding:0}
.uplot .u-legend tr.picked{outline:2px solid var(--pick)}
.u-select{background:var(--pick)!important}
.rows{position:relative;border:1px solid var(--line);border-radius:6px;overflow-y:auto;
max-height:440px}
.rows canvas{position:sticky;top:0;display:block;width:100%}
.said{font-size:13px;min-height:2.9em;overflow-wrap:anywhere}
.find{width:100%;max-width:340px;font:inherit;font-size:13px;padding:3px 8px;margin:0 0 8px;
color:inherit;background:var(--bg);border:1px solid var(--line);border-radius:6px}
#picked{position:sticky;bottom:0;background:var(--card);border:1px solid var(--line);
border-radius:6px 6px 0 0;padding:6px 12px;font-size:13px;overflow-wrap:anywhere}
#picked:empty{display:none}
#picked button{font:inherit;margin-left:8px}
@media(max-width:600px){body{font-size:14px}h1{font-size:20px}svg text{font-size:12px}
.wide thead{display:none}
.wide table,.wide tbody,.wide tr,.wide td{display:block}
.wide tr{border-bottom:1px solid var(--line);padding:4px 0}
.wide td,.ends-long td:last-child{border:0;padding:1px 0;min-width:0;max-width:none;
overflow-wrap:anywhere}
.wide td:empty{display:none}
.wide td[data-h]::before{content:attr(data-h)": ";color:var(--soft)}}
@media print{.wide{overflow:visible}figure,tr{break-inside:avoid}
.uplot,#picked,.find{
display:none}.live figure>svg{display:block}.live figure>.legend{display:flex}
figure>svg{max-height:260px}}
""".replace("\n", "")
